"""Which traced runs a figure of the device shows: whole traces, one setup for each SSD, at the paper's tight limit."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.device_io import has_device_io, load_device_io
from analysis.load import Results, ResultsError
from analysis.selection import SSD_COLUMNS, Selection, comparable, limited, split_by_ssd

TIGHT_GB = 2.0  # the paper's limit for what it shows of the device
DIRECT_PATHS = ("ext4_direct", "block_direct", "io_uring_cmd")
RATE = "device_gb_per_s.{}"


def traced(results: Results) -> Selection:
    """The traced runs of each testbed and SSD at 2 GB, or at the lowest limit that was traced."""
    runs = limited(results.runs)
    runs = runs[runs["folder"].map(has_device_io).astype(bool)]
    faults = runs["folder"].map(fault).dropna()
    selections = [_tight(comparable(group)) for _, group in split_by_ssd(runs.drop(index=faults.index))]
    chosen = pd.concat([runs.head(0), *(selection.runs for selection in selections)])
    left_out = tuple(text for selection in selections for text in selection.left_out)
    return Selection(with_device_rates(chosen, results.io), (*faults, *left_out))


def fault(run_dir: Path) -> str | None:
    """Why a run's trace cannot be used, in a sentence; None if it can. All of it is read: damage may lie anywhere."""
    try:
        load_device_io(run_dir)
    except ResultsError as error:
        return str(error)
    return None


def with_device_rates(runs: pd.DataFrame, io: pd.DataFrame) -> pd.DataFrame:
    """Two more columns, `device_gb_per_s.read` and `.write`: the device's own rate, or not a number.

    The highest rate that fio reached by a direct path on the same testbed and SSD (experiment io_paths).
    """
    rates = {RATE.format(op): [_rate(run, io, op) for _, run in runs.iterrows()] for op in ("read", "write")}
    return runs.join(pd.DataFrame(rates, index=runs.index))


def _rate(run: pd.Series, io: pd.DataFrame, op: str) -> float:
    if io.empty:
        return float("nan")
    same = (io["config.io.op"] == op) & io["config.io.path"].isin(DIRECT_PATHS)
    for column in SSD_COLUMNS:
        if column in io and column in run:
            same &= (io[column] == run[column]) | (io[column].isna() & pd.isna(run[column]))
    rates = [cell["bytes_per_s"] for cells in io.loc[same, "result.cells"] for cell in cells]
    return max(rates, default=float("nan")) / 1e9


def _tight(selection: Selection) -> Selection:
    limits = set(selection.runs["memory_gb"])
    if not limits:
        return selection
    limit = TIGHT_GB if TIGHT_GB in limits else min(limits)
    return selection._replace(runs=selection.runs[selection.runs["memory_gb"] == limit])
