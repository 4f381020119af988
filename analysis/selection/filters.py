"""Subsets of runs by what they are: under a limit, warm, of a testbed, without a tracer, past the page cache."""

from __future__ import annotations

import pandas as pd

from analysis.drawing.style import PIPELINES
from analysis.names import EMULATED, OVERFLOW, PIPELINE, SSD, STORAGE, TESTBED, TRACE
from analysis.results.load import optional

LOCAL, GUEST = "local", "guest"  # testbeds
UNTRACED = "none"


def limited(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs under a memory limit."""
    return runs[runs["memory_gb"].notna()]


def warm(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with a decode iteration after the first, cold one, which counts in no decode value."""
    return runs[runs["decode_iterations"] > 1]


def of_testbed(runs: pd.DataFrame, name: str) -> pd.DataFrame:
    """The runs of one testbed."""
    return runs[runs[TESTBED] == name]


def one_testbed(runs: pd.DataFrame) -> pd.DataFrame:
    """The machine's own runs where they make a curve, else the guest's: no figure mixes the two."""
    own = of_testbed(runs, LOCAL)
    return own if own["memory_gb"].nunique() > 1 else runs[runs[TESTBED] != LOCAL]


def trace_name(runs: pd.DataFrame) -> pd.Series:
    """The tracer of each run. Source: `trace.name` of config.yaml."""
    return optional(runs, TRACE).fillna(UNTRACED).astype(str)


def untraced(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs without a tracer, which takes time from the path that it looks at."""
    return runs[trace_name(runs) == UNTRACED]


def past_the_cache(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with a pipeline that took all layers by the direct path."""
    direct = (optional(runs, "result.plan.n1") == 0) & (optional(runs, OVERFLOW) == "direct")
    return runs[direct & optional(runs, PIPELINE).isin(PIPELINES)]


def split_by_ssd(runs: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The runs of each testbed and SSD, with a panel's title: figures never mix them."""
    groups = runs.reindex(columns=SSD).groupby(list(SSD), dropna=False).groups
    return [(_title(key, runs.loc[index]), runs.loc[index]) for key, index in groups.items()]


def _title(key: tuple[object, ...], runs: pd.DataFrame) -> str:
    """The testbed and its SSD: by model, or by the name that the configuration gives an emulated one."""
    if optional(runs, EMULATED).eq(True).any():
        return f"{key[0]}, {runs[STORAGE].iloc[0]} (emulated)"
    return ", ".join(part for part in key[:2] if isinstance(part, str))
