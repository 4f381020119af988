"""kv_io.parquet of a run as a frame: one row for each read or write of a tensor, as the engine logged it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.load import ResultsError

FILE_NAME = "kv_io.parquet"
COLUMNS = (
    "phase",
    "iteration",
    "layer",
    "kind",
    "op",
    "path",
    "thread",
    "bytes",
    "device_read_bytes",
    "device_written_bytes",
    "storage_start_ns",
    "storage_end_ns",
    "link_start_ns",
    "link_end_ns",
)


def read(run_dir: Path) -> pd.DataFrame:
    """The log of one run in the order of its storage transfers; times in ns of CLOCK_MONOTONIC.

    Raises:
        ResultsError: the file is missing, damaged, or lacks a column.
    """
    path = run_dir / FILE_NAME
    try:
        operations = pq.read_table(path, columns=list(COLUMNS)).to_pandas()
    except FileNotFoundError:
        raise ResultsError(f"{path} does not exist; measure the point again with rerun_stale=true") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ResultsError(f"{path} is damaged ({' '.join(str(error).split())[:200]}); delete the folder") from None
    return operations.sort_values("storage_start_ns", ignore_index=True)


def hit_rate_by_layer(operations: pd.DataFrame) -> pd.DataFrame:
    """Share of the bytes read in decode that came from memory, 0 to 1: one row per iteration, one column per layer.

    1 - device_read_bytes / bytes over the reads of a layer's two tensors; readahead for a later tensor counts where it
    was read.
    """
    reads = operations[(operations["phase"] == "decode") & (operations["op"] == "read")]
    sums = reads.groupby(["iteration", "layer"])[["bytes", "device_read_bytes"]].sum()
    return (1 - sums["device_read_bytes"] / sums["bytes"]).unstack("layer")
