"""Which traced runs a figure of the device shows: whole traces, one setup for each SSD, at the paper's tight limit."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.names import DISK, DISK_SERIAL, IO_OP, IO_PATH, MACHINE, PACE, SSD
from analysis.results.device_io import DECODE_READ, PREFILL_WRITE, has_device_io, load_device_io
from analysis.results.documents import ResultsError
from analysis.results.load import Results
from analysis.selection.comparison import OVER_LIMITS, Selection
from analysis.selection.filters import limited, split_by_ssd, trace_name, warm
from analysis.selection.tracing_cost import with_tracing_cost
from dualblade.run.run_files import RunFile

LAYERS = "io_layers"  # a tracer of every page fault: its latencies are not those of other tracers
TIGHT_GB = 2.0  # the paper's limit in its figures of the device
DIRECT_PATHS = ("ext4_direct", "block_direct", "io_uring_cmd")
RATE = "device_gb_per_s.{}"
EMULATION = "config.emulated_ssd."  # holds the speed of an emulated SSD, which model and serial do not


def traced(results: Results) -> Selection:
    """The traced runs of each testbed and SSD at 2 GB, or at the lowest limit that was traced.

    Runs with trace=io_layers are left out: their latencies are not comparable.
    """
    return traced_of(results.runs[trace_name(results.runs) != LAYERS], results)


def traced_of(runs: pd.DataFrame, results: Results) -> Selection:
    """The traced runs among `runs`, of each testbed and SSD at 2 GB or at the lowest limit that was traced."""
    runs = warm(limited(runs))
    runs = runs[runs["folder"].map(has_device_io).astype(bool)]
    faults = runs["folder"].map(fault).dropna()
    selections = [_tight(OVER_LIMITS.select(group)) for _, group in split_by_ssd(runs.drop(index=faults.index))]
    chosen = pd.concat([runs.head(0), *(selection.runs for selection in selections)])
    left_out = tuple(text for selection in selections for text in selection.left_out)
    with_cost = with_tracing_cost(chosen, results.runs)
    return Selection(with_device_rates(with_cost, results.io), (*faults, *left_out))


def fault(run_dir: Path) -> str | None:
    """Why a run's trace cannot be used, in a sentence; None if it can. Reads all of it: damage may be anywhere."""
    try:
        io = load_device_io(run_dir)
    except ResultsError as error:
        return str(error)
    if all(len(io.requests_of(kind)) for kind in (PREFILL_WRITE, DECODE_READ)):
        return None
    return f"{run_dir / RunFile.KV_IO} does not say when the trace's phases were; measure the point again"


def with_device_rates(runs: pd.DataFrame, io: pd.DataFrame) -> pd.DataFrame:
    """Add the columns `device_gb_per_s.read` and `.write`: the device's own rate in GB/s, or not a number.

    The highest rate that fio reached by a direct path on the same testbed and storage (experiment io_paths). Storage
    that is paced to a stated rate has none: fio measures the disk below it.
    """
    rates = {RATE.format(op): [_rate(run, io, op) for _, run in runs.iterrows()] for op in ("read", "write")}
    return runs.join(pd.DataFrame(rates, index=runs.index))


def _rate(run: pd.Series, io: pd.DataFrame, op: str) -> float:
    if io.empty or not _missing(run.get(PACE)):
        return float("nan")
    wanted = io[(io[IO_OP] == op) & io[IO_PATH].isin(DIRECT_PATHS)]
    columns = _identity(run, io)
    same = [other for _, other in wanted.iterrows() if all(_alike(run.get(name), other.get(name)) for name in columns)]
    rates = [cell["bytes_per_s"] for other in same for cell in other["result.cells"]]
    return max(rates, default=float("nan")) / 1e9


def _identity(run: pd.Series, io: pd.DataFrame) -> list[str]:
    """Columns that are equal for runs on the same storage. A disk without a serial is known by its name alone."""
    anonymous = [DISK] if _missing(run.get(DISK_SERIAL)) else []
    emulation = {name for name in (*run.index, *io.columns) if name.startswith(EMULATION)}
    return [*SSD, *MACHINE, *anonymous, *sorted(emulation)]


def _alike(one: object, other: object) -> bool:
    return bool(one == other) or (_missing(one) and _missing(other))


def _missing(value: object) -> bool:
    return value is None or value != value


def _tight(selection: Selection) -> Selection:
    limits = set(selection.runs["memory_gb"])
    if not limits:
        return selection
    limit = TIGHT_GB if TIGHT_GB in limits else min(limits)
    return selection._replace(runs=selection.runs[selection.runs["memory_gb"] == limit])
