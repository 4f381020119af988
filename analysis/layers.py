"""Where the time of a request of the page-cache path goes, layer by layer, from io_layers.parquet beside a trace."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.device_io import RequestKind, load_device_io
from analysis.device_metrics import NS_PER_US
from analysis.load import ResultsError

FILE_NAME = "io_layers.parquet"
LAYERS = ("vfs", "file_system", "block", "device")
JOINED_BY = ["offset_bytes", "issue_ns"]


def layer_us(run_dir: Path, kind: RequestKind) -> pd.DataFrame:
    """One row per device command of a request kind whose way down was seen: microseconds in each of LAYERS.

    vfs: from the entry into the kernel (or the submission before, where one entry makes several) to the file system's
    look-up of where the bytes lie; it holds the page cache, page allocation and readahead. file_system: to the bio's
    hand-over, all since the submission before where one look-up served several. block: to the issue to the driver, time
    in the scheduler and for a free tag included. device: to the completion, the driver included, which the block
    layer's tracepoints do not tell apart.

    Raises:
        ResultsError: the run has no usable trace of layers.
    """
    commands = load_device_io(run_dir).commands_of(kind)
    stamps = _read(run_dir / FILE_NAME)
    seen = commands.merge(stamps, on=JOINED_BY)
    seen = seen[(seen[["enter_ns", "queue_ns"]] > 0).all(axis=1)]
    seen["fs_ns"] = seen["fs_ns"].where(seen["fs_ns"] > 0, seen["enter_ns"])
    times = seen[["enter_ns", "fs_ns", "queue_ns", "issue_ns", "complete_ns"]].diff(axis=1).iloc[:, 1:] / NS_PER_US
    return times.set_axis(list(LAYERS), axis=1)[(times >= 0).all(axis=1).to_numpy()]


def seen_share(run_dir: Path, kind: RequestKind) -> float:
    """Share, from 0 to 1, of the commands of a kind whose way down was seen."""
    commands = load_device_io(run_dir).commands_of(kind)
    return len(layer_us(run_dir, kind)) / len(commands) if len(commands) else float("nan")


def _read(path: Path) -> pd.DataFrame:
    try:
        return pq.read_table(path).to_pandas().drop_duplicates(JOINED_BY)
    except (OSError, pa.ArrowException) as error:
        raise ResultsError(f"{path} cannot be used ({' '.join(str(error).split())[:200]}); measure again") from None
