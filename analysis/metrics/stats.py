"""Median and interval over repetitions, without assuming a distribution.

Repetitions are few and their noise is skewed (a shared disk is slow at times, never fast), so neither a standard error
nor a bootstrap of five values is honest. The interval between two order statistics needs no assumption but
independence: the number of n values below the true median is binomial(n, 1/2), so the k-th smallest and the k-th
largest value enclose it with probability 1 - 2 P(binomial(n, 1/2) < k). We take the narrowest such pair that reaches
95 %. It exists from six values on; for two to five it is the whole range, whose lower coverage (50, 75, 88, 94 %) is
stated. One value has no interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

CONFIDENCE = 0.95


def coverage(n_values: int, rank: int) -> float:
    """Probability that the `rank`-th smallest and the `rank`-th largest of `n_values` enclose the true median."""
    return 1 - math.ldexp(sum(math.comb(n_values, below) for below in range(rank)), 1 - n_values)


def interval_rank(n_values: int) -> int:
    """The largest rank whose interval still covers the median with `CONFIDENCE`, or 1 (the range) when none does."""
    ranks = range(1, (n_values + 1) // 2 + 1)
    return max((rank for rank in ranks if coverage(n_values, rank) >= CONFIDENCE), default=1)


def interval_low(values: pd.Series) -> float:
    """Lower end of the interval; not a number for a single value."""
    return _order_statistic(values, interval_rank(len(values)) - 1)


def interval_high(values: pd.Series) -> float:
    """Upper end of the interval; not a number for a single value."""
    return _order_statistic(values, len(values) - interval_rank(len(values)))


def interval(values: pd.Series) -> tuple[float, float] | None:
    """Return both ends of the interval; None for fewer than two values."""
    return (interval_low(values), interval_high(values)) if len(values) > 1 else None


def summarise(frame: pd.DataFrame, by: list[str], value: str) -> pd.DataFrame:
    """Median, interval and number of `value` per group: columns `by`, median, low, high, runs."""
    groups = frame.dropna(subset=[value]).groupby(by, sort=True)[value]
    return groups.agg(median="median", low=interval_low, high=interval_high, runs="size").reset_index()


def describe_interval(runs: Iterable[int]) -> str:
    """What the bars of points with these numbers of runs mean, for a caption."""
    repeated = sorted({n for n in runs if n > 1})
    if not repeated:
        return "one run per point, so no interval is drawn"
    least = min(coverage(n, interval_rank(n)) for n in repeated)
    return f"points are medians, bars the order-statistic interval of the median (coverage at least {least:.0%})"


def _order_statistic(values: pd.Series, index: int) -> float:
    return float(values.sort_values().iloc[index]) if len(values) > 1 else math.nan
