"""Which runs decide a claim; too few for its question is a reason, not a guess."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from analysis.claims.verdict import Untestable
from analysis.drawing.curves import full_hit_gb
from analysis.metrics.line_fit import line_per_repetition
from analysis.names import REPETITION, VARIANT
from analysis.selection.setups import Setup

MIN_LIMITS = 3
WORDS = {
    "prefill_s": "a prefill latency",
    "decode_s_per_token": "a decode latency of warm iterations",
    "decode_hit_rate": "a hit rate of warm iterations",
}


def over_limits(setup: Setup, variants: Collection[str], *metrics: str) -> pd.DataFrame:
    """The comparable runs with `metrics`, of each limit and repetition that has runs of all `variants`.

    Raises:
        Untestable: those are at too few limits to speak of a curve.
    """
    runs = setup.comparable(*metrics)
    runs = runs[runs[VARIANT].isin(variants)]
    runs = runs[runs.groupby(["memory_gb", REPETITION])[VARIANT].transform("nunique") == len(variants)]
    n_limits = runs["memory_gb"].nunique()
    if n_limits < MIN_LIMITS:
        raise Untestable(
            f"it takes {' and '.join(WORDS[metric] for metric in metrics)} of {' and '.join(variants)} at "
            f"{MIN_LIMITS} memory limits or more, and there are {n_limits}"
            f"{' at which they share a repetition' if len(variants) > 1 else ''}"
        )
    return runs


def below_full(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs under a limit that does not hold the whole KV.

    Raises:
        Untestable: fewer than three such limits.
    """
    short = runs[runs["memory_gb"] < full_hit_gb(runs)]
    if short["memory_gb"].nunique() < MIN_LIMITS:
        raise Untestable(f"it takes {MIN_LIMITS} limits that do not hold the whole KV")
    return short


def lines_over_limits(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A straight line through `metric` over the limits, one row per repetition: columns slope, explained.

    Raises:
        Untestable: no repetition has limits enough for one.
    """
    lines = line_per_repetition(runs, "memory_gb", metric)
    if lines.empty:
        raise Untestable(f"it takes a repetition with {MIN_LIMITS} limits, for a line through them")
    return lines
