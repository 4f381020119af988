"""One run of many, by what tells runs apart."""

from __future__ import annotations

import pandas as pd

from analysis.load import Results, ResultsError
from analysis.selection import limited


def one_run(results: Results, variant: str, memory_gb: float | None = None, traced: bool = False) -> pd.Series:
    """The newest run of a variant at a limit (None: its lowest), traced or not; its name is the run's folder.

    Raises:
        ResultsError: there is none; the message lists what there is.
    """
    runs = results.runs
    if traced:
        runs = runs[[(folder / "device_io.parquet").exists() for folder in runs["folder"]]]
    of_variant = runs[runs["config.variant.name"] == variant]
    wanted = of_variant["memory_gb"].min() if memory_gb is None else memory_gb
    chosen = of_variant[of_variant["memory_gb"] == wanted]
    if chosen.empty:
        what = f"{'traced ' if traced else ''}run of {variant}" + ("" if pd.isna(wanted) else f" at {wanted:g} GB")
        cure = "; measure one with trace=block_requests" if traced else ""
        raise ResultsError(f"there is no {what}{cure}; there are: {_there_is(runs)}")
    return chosen.sort_values("environment.started_at").iloc[-1]


def describe(run: pd.Series) -> str:
    """The run in a title."""
    limit_gb = run["memory_gb"]
    limit = "no limit" if pd.isna(limit_gb) else f"{limit_gb:g} GB"
    return f"{run['config.variant.name']} at {limit}, {run['config.testbed.name']}, scale {run['config.scale']}"


def _there_is(runs: pd.DataFrame) -> str:
    limits = limited(runs).groupby("config.variant.name")["memory_gb"].unique()
    return "there are: " + (
        "; ".join(f"{name} at {', '.join(f'{gb:g}' for gb in sorted(gbs))} GB" for name, gbs in limits.items())
        or "none"
    )
