"""Relative changes between two variants, from pairs of runs of the same limit and repetition.

Pairs are what the blocked sweep makes comparable: both runs of a pair met the machine in the same hour.
"""

from __future__ import annotations

import pandas as pd

from analysis.stats import summarise


def changes(runs: pd.DataFrame, variant: str, reference: str, metric: str, by: str = "memory_gb") -> pd.DataFrame:
    """`variant / reference - 1` of `metric`, one row per pair: columns `by`, change."""
    of = {
        name: runs[runs["config.variant.name"] == name].groupby([by, "config.repetition"])[metric].median()
        for name in (variant, reference)
    }
    ratio = (of[variant] / of[reference] - 1).dropna()
    return ratio.rename("change").reset_index()[[by, "change"]]


def change_by_limit(runs: pd.DataFrame, variant: str, reference: str, metric: str) -> pd.DataFrame:
    """Medians and intervals over the pairs: columns memory_gb, median, low, high, runs."""
    return summarise(changes(runs, variant, reference, metric), ["memory_gb"], "change")
