"""The arithmetic of a comparison, and that a part measured again leaves the others alone."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from bench.comparison import Comparison, Pair, interval
from bench.results import Results
from experiments.errors import MachineError


def comparison(pairs: list[Pair], name: str = "ours/theirs") -> Comparison:
    return Comparison(name, "what", "s", "lower", pairs)


def test_ratio_is_taken_within_pairs_so_a_slow_spell_cancels() -> None:
    spells = (1.0, 1.0, 5.0, 9.0, 2.0)
    pairs = [Pair(ours=0.9 * slow, theirs=1.0 * slow) for slow in spells]
    assert comparison(pairs).ratio == pytest.approx(0.9)


def test_one_disturbed_pair_does_not_move_the_ratio() -> None:
    pairs = [Pair(9.0, 10.0)] * 4 + [Pair(90.0, 10.0)]
    assert comparison(pairs).ratio == pytest.approx(0.9)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_interval_covers_the_median_as_often_as_it_says(n: int) -> None:
    """A value lies below or above the true median with equal chance: count the cases where the interval holds it."""
    sides = list(itertools.product((-1.0, 1.0), repeat=n))
    # Distinct magnitudes, so that order statistics are those of a continuous distribution around a median of 0.
    samples = [[side * (1 + position / 100) for position, side in enumerate(case)] for case in sides]
    bounds = [interval(sample) for sample in samples]
    holds = sum(bound is not None and bound.low < 0 < bound.high for bound in bounds)
    assert bounds[0] is not None
    assert holds / len(sides) == pytest.approx(bounds[0].coverage)


def test_a_single_pair_has_no_interval() -> None:
    assert interval([1.0]) is None
    assert comparison([Pair(1.0, 2.0)]).as_dict()["interval"] is None


def test_cases_are_summed_up_apart_and_together() -> None:
    pairs = [Pair(1.0, 2.0, "a"), Pair(3.0, 2.0, "b"), Pair(1.0, 2.0, "a")]
    entry = comparison(pairs).as_dict()
    assert entry["ratio"] == 0.5
    assert {case: summary["ratio"] for case, summary in entry["by_case"].items()} == {"a": 0.5, "b": 1.5}
    assert [(pair["ours"], pair["theirs"], pair["case"]) for pair in entry["pairs"]] == [
        (1.0, 2.0, "a"),
        (3.0, 2.0, "b"),
        (1.0, 2.0, "a"),
    ]


def test_a_part_measured_again_replaces_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "results.json"

    def measure(part: str, ratio: float) -> None:
        measured = {"comparisons": [comparison([Pair(ratio, 1.0)], f"{part}/theirs")], "packages": ["theirs 1.0"]}
        Results.load(path).with_part(part, measured, {"kernel": "6.1"}).write(path)

    measure("read", 0.5)
    measure("write", 0.75)
    measure("read", 0.25)
    content = json.loads(path.read_text())
    assert content["ratios"] == {"read/theirs": 0.25, "write/theirs": 0.75}
    assert content["parts"]["write"]["environment"] == {"kernel": "6.1"}
    assert content["parts"]["write"]["packages"] == ["theirs 1.0"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text("[1, 2]")
    with pytest.raises(MachineError, match="not a result of this bench"):
        Results.load(path)
