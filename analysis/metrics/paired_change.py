"""Relative changes from pairs of runs that differ in one setting alone.

Pairs of one repetition are what the blocked sweep makes comparable: both runs met the machine in the same hour.
"""

from __future__ import annotations

import pandas as pd

from analysis.metrics.stats import summarise
from analysis.names import REPETITION, VARIANT


def changes(runs: pd.DataFrame, setting: str, value: str, reference: str, metric: str, by: list[str]) -> pd.DataFrame:
    """`metric` with `value` over `metric` with `reference`, less 1: one row per pair, columns `by`, repetition, change.

    Runs pair up when they are equal in the columns `by` and in repetition; several such runs count by their median.
    """
    keys = [*by, REPETITION]
    medians = {
        name: runs[runs[setting] == name].groupby(keys, dropna=False)[metric].median() for name in (value, reference)
    }
    return (medians[value] / medians[reference] - 1).dropna().rename("change").reset_index()


def change_by_limit(runs: pd.DataFrame, variant: str, reference: str, metric: str) -> pd.DataFrame:
    """Return the change between variants over the pairs at each limit: columns memory_gb, median, low, high, runs."""
    pairs = changes(runs, VARIANT, variant, reference, metric, ["memory_gb"])
    return summarise(pairs, ["memory_gb"], "change")
