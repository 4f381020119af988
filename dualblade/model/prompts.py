"""Prompts of a model run: lines of a text file, or questions about records with solved examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from dualblade.config.run import RunConfig
from dualblade.errors import ConfigurationError
from dualblade.model.questions import Question, Task, load_task

CountTokens = Callable[[str], int]
PromptSource = list[str] | Task


@dataclass(frozen=True)
class Prompts:
    """One text for each sequence of the batch; `expected` are the right answers, where there are any."""

    texts: list[str]
    expected: list[str] | None = None
    n_examples: int = 0

    def score(self, texts: list[str]) -> dict[str, Any] | None:
        """Compare the generated texts with the right answers; None if there are none.

        Only the first word of a text counts. `one_answer` is the accuracy of always giving the more frequent answer.
        """
        if self.expected is None:
            return None
        given = [_first_word(text) for text in texts]
        right = sum(one == other for one, other in zip(given, self.expected, strict=True))
        of = len(self.expected)
        return {
            "expected": self.expected,
            "given": given,
            "right": right,
            "of": of,
            "accuracy": right / of,
            "one_answer": max(Counter(self.expected).values()) / of,
            "examples": self.n_examples,
        }


def read_source(config: RunConfig) -> PromptSource:
    """Read the source of a run's prompts: lines of a text, or a task.

    Raises:
        ConfigurationError: the files cannot be used.
    """
    workload = config.workload
    if (workload.prompts is None) == (workload.records is None):
        state = "neither is set" if workload.prompts is None else "both are set"
        raise ConfigurationError(
            f"a model reads workload.prompts or workload.records, and {state}; give either a text file with one prompt "
            "per line or a folder of records"
        )
    if workload.records is not None:
        return load_task(workload.records, config.batch_size)
    assert workload.prompts is not None
    return _read_lines(workload.prompts, config.batch_size)


def make_prompts(source: PromptSource, prompt_tokens: int, count_tokens: CountTokens) -> Prompts:
    """Make the prompts of a run.

    Raises:
        ConfigurationError: a question is longer than a prompt.
    """
    if not isinstance(source, Task):
        return Prompts(source)
    n_examples = _fitting(source, prompt_tokens, count_tokens)
    texts = [_few_shot(source, question, n_examples) for question in source.questions]
    return Prompts(texts, [question.answer for question in source.questions], n_examples)


def _fitting(task: Task, prompt_tokens: int, count_tokens: CountTokens) -> int:
    """Return the largest number of examples with which every prompt of the batch fits into its tokens."""
    for n_examples in range(len(task.examples), -1, -1):
        longest = max(count_tokens(_few_shot(task, question, n_examples)) for question in task.questions)
        if longest <= prompt_tokens:
            return n_examples
    raise ConfigurationError(
        f"workload.prompt_tokens={prompt_tokens} is too short: the longest question alone takes {longest} tokens; "
        f"set workload.prompt_tokens={longest} or more"
    )


def _few_shot(task: Task, question: Question, n_examples: int) -> str:
    solved = [f"{example.text}\n{task.noun}: {example.answer}" for example in task.examples[:n_examples]]
    return "\n\n".join([*solved, f"{question.text}\n{task.noun}:"])


def _first_word(text: str) -> str:
    words = text.split()
    return words[0].strip(".,:;!") if words else ""


def _read_lines(name: str, n_lines: int) -> list[str]:
    """Read one line for each sequence of the batch, starting again at the top if the file has fewer."""
    try:
        lines = [line for line in Path(name).read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise ConfigurationError(
            f"workload.prompts={name} cannot be read: {error.strerror}; give a text file with one prompt per line"
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"workload.prompts={name} is not text in UTF-8; give a text file with one prompt per line"
        ) from None
    if not lines:
        raise ConfigurationError(f"workload.prompts={name} has no lines; write one prompt per line")
    return list(islice(cycle(lines), n_lines))
