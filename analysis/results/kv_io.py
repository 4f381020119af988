"""kv_io.parquet of a run as a frame: one row for each read or write of a tensor, as the engine logged it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.results.documents import ResultsError
from dualblade.run.run_files import RunFile

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
    path = run_dir / RunFile.KV_IO
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


def read_gb_per_s(operations: pd.DataFrame) -> float:
    """Bytes read in warm decode iterations over the time in which any read from storage was under way, GB/s."""
    reads = operations[(operations["phase"] == "decode") & (operations["op"] == "read") & (operations["iteration"] > 1)]
    spans = reads.sort_values("storage_start_ns")[["storage_start_ns", "storage_end_ns"]].to_numpy()
    busy_ns, until_ns = 0, 0
    for start_ns, end_ns in spans:
        busy_ns += max(0, end_ns - max(start_ns, until_ns))
        until_ns = max(until_ns, end_ns)
    return float(reads["bytes"].sum() / busy_ns)


def one_at_a_time(operations: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The operations as a single server took them: each begins when the one before has ended."""
    served = operations.sort_values(f"{kind}_end_ns", ignore_index=True)
    free_ns = served[f"{kind}_end_ns"].shift(fill_value=0)
    return served.assign(**{f"{kind}_start_ns": np.maximum(served[f"{kind}_start_ns"], free_ns)})


def gb_per_s_by_ms(operations: pd.DataFrame, kind: str, start_ns: int, n_ms: int) -> np.ndarray:
    """Throughput of "storage" or "link" in each of `n_ms` milliseconds from `start_ns` on: `[n_ms]`, GB/s.

    Each operation's bytes are spread evenly over its own time.
    """
    edges_ns = start_ns + np.arange(n_ms + 1) * 1_000_000
    moved = np.zeros(n_ms)
    for row in operations.itertuples():
        begin, end = getattr(row, f"{kind}_start_ns"), getattr(row, f"{kind}_end_ns")
        inside_ns = np.clip(np.minimum(edges_ns[1:], end) - np.maximum(edges_ns[:-1], begin), 0, None)
        moved += row.bytes * inside_ns / max(1, end - begin)
    return moved / 1e6
