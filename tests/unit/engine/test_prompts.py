"""Few-shot prompts that fit their tokens, and what their answers score."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dualblade.config.run import RecordsConfig, RunConfig, WorkloadConfig
from dualblade.errors import ConfigurationError
from dualblade.model.prompts import Prompts, make_prompts, read_source
from experiments.points.point import Point
from experiments.points.sweep import compose_points

LETTERS = [chr(ord("a") + n) for n in range(12)]


@pytest.fixture
def records(tmp_path: Path) -> RecordsConfig:
    """Records of one word each, so that a prompt of k examples has a length that is easily told."""
    lines = [f"COL x VAL {letter} \tCOL x VAL {letter} \t{n % 2}\n" for n, letter in enumerate(LETTERS)]
    for name in ("valid.txt", "test.txt"):
        (tmp_path / name).write_text("".join(lines))
    return RecordsConfig("entity_matching", str(tmp_path))


def run(prompt_tokens: int, **workload: object) -> RunConfig:
    (config,) = compose_points([])
    settings = WorkloadConfig("test", 4, prompt_tokens, 3, source="model")
    return dataclasses.replace(
        Point.from_config(config).run,
        scale=1,
        workload=dataclasses.replace(settings, **workload),  # type: ignore[arg-type]
    )


def words(text: str) -> int:
    return len(text.split())


# A question alone has 9 words (`A: x: a B: x: a A and B:`), and each example 10 more.
@pytest.mark.parametrize(("prompt_tokens", "examples"), [(9, 0), (18, 0), (19, 1), (29, 2), (200, 10)])
def test_as_many_examples_as_fit_come_before_each_question(
    records: RecordsConfig, prompt_tokens: int, examples: int
) -> None:
    prompts = make_prompts(read_source(run(prompt_tokens, records=records)), prompt_tokens, words)
    assert prompts.n_examples == examples
    assert [words(text) for text in prompts.texts] == [9 + 10 * examples] * 4
    assert all(text.endswith("\nA and B:") for text in prompts.texts)
    assert sorted(prompts.expected or []) == ["different"] * 2 + ["same"] * 2


def test_a_prompt_that_cannot_hold_its_question_is_refused(records: RecordsConfig) -> None:
    with pytest.raises(ConfigurationError, match=r"the longest question alone takes 9 tokens; .*prompt_tokens=9 or"):
        make_prompts(read_source(run(8, records=records)), 8, words)


def test_prompts_come_from_one_place(records: RecordsConfig) -> None:
    with pytest.raises(ConfigurationError, match="neither is set; give either a text file"):
        read_source(run(9))
    with pytest.raises(ConfigurationError, match="both are set; give either a text file"):
        read_source(run(9, records=records, prompts="prompts.txt"))


def test_a_text_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory; give a text file"):
        read_source(run(9, prompts=str(tmp_path)))
    (tmp_path / "prompts.txt").write_bytes(b"\xff\xfe\0")
    with pytest.raises(ConfigurationError, match="is not text in UTF-8; give a text file with one prompt per line"):
        read_source(run(9, prompts=str(tmp_path / "prompts.txt")))


def test_an_answer_counts_by_its_first_word() -> None:
    prompts = Prompts(["?"] * 4, ["yes", "no", "no", "no"], n_examples=2)
    assert prompts.score([" yes\n\n", " No", "no, it", ""]) == {
        "expected": ["yes", "no", "no", "no"],
        "given": ["yes", "No", "no", ""],
        "right": 2,
        "of": 4,
        "accuracy": 0.5,
        "one_answer": 0.75,
        "examples": 2,
    }


def test_lines_of_a_text_have_no_right_answers() -> None:
    assert Prompts(["Once upon a time"]).score([" there was"]) is None
