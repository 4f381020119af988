"""How many questions about records a model answered correctly, by task, and whether all runs gave the same tokens."""

from __future__ import annotations

import json
from typing import NamedTuple

import pandas as pd

from analysis.names import WORKLOAD


class Accuracy(NamedTuple):
    """Correct answers of `questions`, the fewest and the most of all runs; whether all gave the same tokens."""

    fewest: int
    most: int
    questions: int
    same_tokens: bool
    runs: int

    def __str__(self) -> str:
        correct = str(self.fewest) if self.fewest == self.most else f"{self.fewest} to {self.most}"
        verdict = "all alike" if self.same_tokens else "NOT alike"
        return f"{correct} of {self.questions}, {verdict if self.runs > 1 else 'one run'}"


def accuracy_by_task(runs: pd.DataFrame) -> dict[str, Accuracy]:
    """The accuracy in each task. Source: `tokens` of result.json."""
    return {str(task): _accuracy(group) for task, group in runs.groupby(WORKLOAD)}


def _accuracy(runs: pd.DataFrame) -> Accuracy:
    correct, tokens = runs["result.tokens.answers.right"].astype(int), runs["result.tokens.ids"].map(json.dumps)
    questions = int(runs["result.tokens.answers.of"].iloc[0])
    return Accuracy(correct.min(), correct.max(), questions, tokens.nunique() == 1, len(runs))
