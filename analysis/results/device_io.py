"""Device commands of a run beside the operations of its engine: device_io.parquet and kv_io.parquet, in one clock.

Only whole traces are returned: if events were lost, depth, busy rate and order are wrong.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.results.documents import ResultsError
from dualblade.run.run_files import RunFile
from traces import schema
from traces.errors import TraceError

KV_COLUMNS = ("phase", "iteration", "layer", "kind", "op", "path", "bytes", "storage_start_ns", "storage_end_ns")
COLD = 1  # the decode iteration right after prefill


class RequestKind(NamedTuple):
    """Reads or writes of one phase: the paper's kinds of requests."""

    phase: str
    op: str

    @property
    def label(self) -> str:
        return f"{self.phase.capitalize()} {self.op}"


PREFILL_WRITE, DECODE_READ, DECODE_WRITE = (
    RequestKind("prefill", "write"),
    RequestKind("decode", "read"),
    RequestKind("decode", "write"),
)
KINDS = (PREFILL_WRITE, DECODE_READ, DECODE_WRITE)


@dataclass(frozen=True)
class DeviceIO:
    """`commands`: reads and writes as traces/schema.py has them, in the order of issue, each seen to complete.

    `requests`: the engine's operations on whole tensors or rows of them (kv_io.parquet); empty for a foreign trace.
    Both in ns of the same clock. The cold decode iteration is left out of both.
    """

    commands: pd.DataFrame
    requests: pd.DataFrame
    info: schema.TraceInfo

    def commands_of(self, kind: RequestKind) -> pd.DataFrame:
        """Return the commands that operations of a kind caused."""
        return _of(self.commands, kind)

    def requests_of(self, kind: RequestKind) -> pd.DataFrame:
        """Return the operations of a kind."""
        return _of(self.requests, kind)


@functools.lru_cache(maxsize=64)
def load_device_io(run_dir: Path) -> DeviceIO:
    """Read a run's trace.

    Raises:
        ResultsError: the trace is missing, damaged, of another version, or lost events.
    """
    try:
        table, info = schema.read(run_dir / RunFile.DEVICE_IO)
    except TraceError as error:
        raise ResultsError(str(error)) from None
    if not info.valid:
        raise ResultsError(f"the trace in {run_dir} is not valid: {info.reason}; measure the point again")
    commands = table.to_pandas()
    commands = commands[commands["op"].isin(["read", "write"]) & (commands["complete_ns"] >= 0)]
    return DeviceIO(_warm(commands), _warm(_read_requests(run_dir / RunFile.KV_IO)), info)


def has_device_io(run_dir: Path) -> bool:
    """Return whether a run was traced."""
    return (run_dir / RunFile.DEVICE_IO).exists()


def _read_requests(path: Path) -> pd.DataFrame:
    if not path.exists():
        return pd.DataFrame({name: [] for name in KV_COLUMNS})
    try:
        return pq.read_table(path, columns=list(KV_COLUMNS)).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise ResultsError(f"{path} is damaged ({' '.join(str(error).split())[:200]}); run the point again") from None


def _warm(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[(frame["phase"] != "decode") | (frame["iteration"] > COLD)].reset_index(drop=True)


def _of(frame: pd.DataFrame, kind: RequestKind) -> pd.DataFrame:
    return frame[(frame["phase"] == kind.phase) & (frame["op"] == kind.op)]
