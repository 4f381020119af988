"""What a model answered in each task: how much of it was right, and whether all variants gave the same tokens."""

from __future__ import annotations

import json
from typing import NamedTuple

import pandas as pd

from analysis.names import WORKLOAD


class Answers(NamedTuple):
    """Right answers (the least and the most of the runs) of how many, and whether every run gave the same tokens."""

    least: int
    most: int
    of: int
    alike: bool
    runs: int

    def __str__(self) -> str:
        right = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        verdict = "all alike" if self.alike else "NOT alike"
        return f"{right} of {self.of}, {verdict if self.runs > 1 else 'one run'}"


def answers(runs: pd.DataFrame) -> dict[str, Answers]:
    """By task. Source: `tokens` of result.json."""
    return {str(task): _answers(group) for task, group in runs.groupby(WORKLOAD)}


def _answers(runs: pd.DataFrame) -> Answers:
    right, tokens = runs["result.tokens.answers.right"].astype(int), runs["result.tokens.ids"].map(json.dumps)
    return Answers(
        right.min(), right.max(), int(runs["result.tokens.answers.of"].iloc[0]), tokens.nunique() == 1, len(runs)
    )
