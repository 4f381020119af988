"""The choice of one run of many, by the settings in which they differ."""

from __future__ import annotations

import pandas as pd

from analysis.names import SCALE, STARTED_AT, TESTBED, VARIANT
from analysis.results.documents import ResultsError
from analysis.results.load import Results
from analysis.selection.comparison import OVER_LIMITS
from analysis.selection.filters import LOCAL, limited, of_testbed
from dualblade.run.run_files import RunFile


def one_run(results: Results, variant: str, memory_gb: float | None = None, traced: bool = False) -> pd.Series:
    """The newest run of a variant at a limit (None: its lowest) whose operations, or device events, are kept.

    Runs that a figure would take come first. The row's name is the run's folder.

    Raises:
        ResultsError: there is none; the message lists what there is.
    """
    runs = _holding(RunFile.DEVICE_IO if traced else RunFile.KV_IO, results.runs)
    for candidates in (_usual(runs), runs):
        of_variant = candidates[candidates[VARIANT] == variant]
        wanted = of_variant["memory_gb"].min() if memory_gb is None else memory_gb
        chosen = of_variant[of_variant["memory_gb"] == wanted]
        if not chosen.empty:
            return chosen.sort_values(STARTED_AT).iloc[-1]
    what = f"{'traced ' if traced else ''}run of {variant}" + ("" if pd.isna(wanted) else f" at {wanted:g} GB")
    cure = "; measure one with trace=block_requests" if traced else ""
    raise ResultsError(f"there is no {what}{cure}; there are: {_there_is(runs)}")


def _holding(file_name: str, runs: pd.DataFrame) -> pd.DataFrame:
    return runs[[(folder / file_name).exists() for folder in runs["folder"]]]


def _usual(runs: pd.DataFrame) -> pd.DataFrame:
    """The largest comparable set: of the machine itself, where it has runs."""
    runs = limited(runs)
    own = of_testbed(runs, LOCAL)
    return OVER_LIMITS.select(runs if own.empty else own).runs


def describe(run: pd.Series) -> str:
    """Return the run's name for a title."""
    limit_gb = run["memory_gb"]
    limit = "no limit" if pd.isna(limit_gb) else f"{limit_gb:g} GB"
    return f"{run[VARIANT]} at {limit}, {run[TESTBED]}, scale {run[SCALE]}"


def _there_is(runs: pd.DataFrame) -> str:
    limits = limited(runs).groupby(VARIANT)["memory_gb"].unique()
    each = (f"{name} at {', '.join(f'{gb:g}' for gb in sorted(gbs))} GB" for name, gbs in limits.items())
    return "; ".join(each) or "none"
