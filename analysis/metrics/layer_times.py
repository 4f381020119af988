"""Where the time of a request of the page-cache path goes, layer by layer, from io_layers.parquet beside a trace."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.metrics.device_metrics import NS_PER_US
from analysis.results.device_io import RequestKind, load_device_io
from analysis.results.documents import ResultsError
from dualblade.run.run_files import RunFile

ABOVE = ("vfs", "file_system", "block")
SPLIT, UNSPLIT = ("driver", "device"), ("driver_and_device",)
LAYERS = (*ABOVE, *SPLIT, *UNSPLIT)  # a run has either of the last two kinds
JOINED_BY = ["offset_bytes", "issue_ns"]
SETUP = "setup_ns"


def layer_us(run_dir: Path, kind: RequestKind) -> pd.DataFrame:
    """One row per device command of a request kind whose way down was seen: microseconds in each layer.

    vfs: from the entry into the kernel (or the submission before, where one entry makes several) to the file system's
    look-up of where the bytes lie; it holds the page cache, page allocation and readahead. file_system: to the bio's
    hand-over, all since the submission before where one look-up served several. block: to the driver's beginning, time
    in the scheduler and for a free tag included.

    On NVMe disks driver ends with the issue (nvme_setup_cmd to blk_mq_start_request), and device is all until the
    driver ends the request (nvme_complete_rq), its doorbell and its interrupt included. On other disks block ends with
    the issue, and driver_and_device is all that follows: the block layer's tracepoints do not tell them apart.

    Raises:
        ResultsError: the run has no usable trace of layers.
    """
    seen = load_device_io(run_dir).commands_of(kind).merge(_read(run_dir / RunFile.IO_LAYERS), on=JOINED_BY)
    seen["fs_ns"] = seen["fs_ns"].where(seen["fs_ns"] > 0, seen["enter_ns"])
    split = SETUP in seen
    way = ["enter_ns", "fs_ns", "queue_ns", *([SETUP] if split else []), "issue_ns", "complete_ns"]
    seen = seen[(seen[way] > 0).all(axis=1)]
    times = seen[way].diff(axis=1).iloc[:, 1:] / NS_PER_US
    times = times[(times >= 0).all(axis=1)]
    return times.set_axis([*ABOVE, *(SPLIT if split else UNSPLIT)], axis=1)


def is_split(run_dir: Path) -> bool:
    """Whether the trace tells driver and device apart.

    Raises:
        ResultsError: the run has no usable trace of layers.
    """
    return SETUP in _read(run_dir / RunFile.IO_LAYERS)


def seen_share(run_dir: Path, kind: RequestKind) -> float:
    """Share, from 0 to 1, of the commands of a kind whose way down was seen."""
    commands = load_device_io(run_dir).commands_of(kind)
    return len(layer_us(run_dir, kind)) / len(commands) if len(commands) else float("nan")


def _read(path: Path) -> pd.DataFrame:
    try:
        return pq.read_table(path).to_pandas().drop_duplicates(JOINED_BY)
    except (OSError, pa.ArrowException) as error:
        raise ResultsError(f"{path} cannot be used ({' '.join(str(error).split())[:200]}); measure again") from None
