"""A comparison of one of our figures with theirs, as pairs measured in turn: ratios, their median and its interval."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.metrics.stats import coverage, interval_rank


@dataclass(frozen=True)
class Pair:
    """Ours and theirs, measured one after the other; `case` names what varies between pairs, if anything does."""

    ours: float
    theirs: float
    case: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


@dataclass(frozen=True)
class Interval:
    """Two order statistics that enclose the true median with probability `coverage`."""

    low: float
    high: float
    coverage: float


@dataclass(frozen=True)
class Comparison:
    """Pairs of one kind. `better` says which ratio is ours to win with: above 1 for rates, below 1 for times."""

    name: str
    what: str
    unit: str
    better: str
    pairs: Sequence[Pair]

    @property
    def ratio(self) -> float:
        """Median over the pairs of ours / theirs: what disturbs both of a pair cancels."""
        return statistics.median(pair.ratio for pair in self.pairs)

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as results.json states it."""
        cases = list(dict.fromkeys(pair.case for pair in self.pairs))
        by_case = {case: _summary([pair for pair in self.pairs if pair.case == case]) for case in cases}
        return {
            "what": self.what,
            "unit": self.unit,
            "better": self.better,
            **_summary(self.pairs),
            **({"by_case": by_case} if len(cases) > 1 else {}),
            "pairs": [{"case": pair.case, "ours": pair.ours, "theirs": pair.theirs} for pair in self.pairs],
        }


def interval(values: Sequence[float]) -> Interval | None:
    """Interval of the median (see analysis.metrics.stats); None for a single value."""
    if len(values) < 2:
        return None
    ordered, rank = sorted(values), interval_rank(len(values))
    return Interval(ordered[rank - 1], ordered[-rank], coverage(len(values), rank))


def _summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    ratios = [pair.ratio for pair in pairs]
    bounds = interval(ratios)
    return {
        "ratio": statistics.median(ratios),
        "interval": None if bounds is None else [bounds.low, bounds.high],
        "coverage": None if bounds is None else bounds.coverage,
        "ours": statistics.median(pair.ours for pair in pairs),
        "theirs": statistics.median(pair.theirs for pair in pairs),
    }
