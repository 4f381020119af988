"""Which runs decide a claim; too few for its question is a reason, not a guess."""

from __future__ import annotations

import pandas as pd

from analysis.claims import Untestable
from analysis.curves import full_hit_gb
from analysis.evidence import Setup

LEAST_LIMITS = 3


def over_limits(setup: Setup, *variants: str) -> pd.DataFrame:
    """The comparable runs of `variants` at the limits that all of them have.

    Raises:
        Untestable: those are too few to speak of a curve.
    """
    runs = setup.comparable
    runs = runs[runs["config.variant.name"].isin(variants)]
    present = runs.groupby("memory_gb")["config.variant.name"].nunique()
    limits = present.index[present == len(variants)]
    if len(limits) < LEAST_LIMITS:
        raise Untestable(
            f"it takes {' and '.join(variants)} at {LEAST_LIMITS} memory limits or more, and there are {len(limits)}"
        )
    return runs[runs["memory_gb"].isin(limits)]


def below_full(runs: pd.DataFrame) -> pd.DataFrame:
    """Those under a limit that does not hold the whole KV.

    Raises:
        Untestable: fewer than three such limits.
    """
    short = runs[runs["memory_gb"] < full_hit_gb(runs)]
    if short["memory_gb"].nunique() < LEAST_LIMITS:
        raise Untestable(f"it takes {LEAST_LIMITS} limits that do not hold the whole KV")
    return short
