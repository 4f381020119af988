"""device_io.parquet: one row for each command that a device got; its columns, units and version.

The columns are the same for every source, so a figure of our traces can be drawn from a trace of another tool. Text
columns are dictionaries. A value that the source does not have is -1, or "" in text.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dualblade.run.run_files import RunFile
from traces.errors import TraceError

VERSION = 1
METADATA_KEY = b"dualblade.device_io"
FILE_NAME = RunFile.DEVICE_IO
_AGAIN = f"decode the raw trace again (python -m traces.decode TRACE RUN/{FILE_NAME})"
OPERATIONS = ("read", "write", "deallocate", "flush", "other")

_TEXT = pa.dictionary(pa.int32(), pa.string())

# name, type, unit and meaning
COLUMNS: tuple[tuple[str, pa.DataType, str], ...] = (
    ("device", _TEXT, "disk or NVMe controller by its name in the trace"),
    ("queue", pa.int32(), "hardware queue: NVMe's submission queue id, else the blk-mq queue; -1 unknown"),
    ("cid", pa.int32(), "NVMe command identifier; -1 where the source has none"),
    ("op", _TEXT, ", ".join(OPERATIONS)),
    ("offset_bytes", pa.int64(), "bytes from the start of the whole device (NVMe: namespace); -1 none, as for a flush"),
    ("bytes", pa.int64(), "bytes moved; 0 for a flush, the deallocated bytes, where known, for deallocate"),
    ("issue_ns", pa.int64(), "ns of the trace's clock when the driver got the command"),
    ("complete_ns", pa.int64(), "ns of the trace's clock when the completion was handled; -1 not seen"),
    ("status", pa.int32(), "0 success, else NVMe's status or the block layer's errno; -1 completion not seen"),
    ("depth_at_issue", pa.int32(), "commands in flight on the device, this one included; -1 unknown"),
    ("layer", pa.int32(), "layer of the tensor that the first byte belongs to; -1 none"),
    ("kind", _TEXT, 'k or v; "" none'),
    ("path", _TEXT, 'path that the tensor takes: direct, page_cache, page_cache_evict; "" none'),
    ("tensor_offset_bytes", pa.int64(), "bytes from the tensor's first byte; -1 none"),
    ("phase", _TEXT, 'prefill or decode, of the tensor operation that caused the command; "" none'),
    ("iteration", pa.int32(), "decode iteration from 1; 0 prefill; -1 none"),
)

SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind, _ in COLUMNS])


@dataclass(frozen=True)
class TraceInfo:
    """The source of a trace, and whether the trace is whole.

    `valid` is False, with a `reason`, if events were lost; figures and claims must not use the trace then.
    `counted_events` is the kernel's count, None if the source has none. `missed_commands` are in the disks' own
    statistics and not in the trace. `skipped_probes` is how often the kernel skipped a probe.
    """

    source: str
    clock: str
    valid: bool
    reason: str | None = None
    printed_events: int = 0
    counted_events: int | None = None
    missed_commands: int | None = None
    skipped_probes: int | None = None
    broken_lines: int = 0
    requeues: int = 0
    unmatched_issues: int = 0
    unmatched_completions: int = 0
    devices: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the content for environment.json and for the metadata of the file."""
        return {"version": VERSION, **dataclasses.asdict(self)}


def with_info(info: TraceInfo) -> pa.Schema:
    """Return the schema of a file that holds `info` as its metadata."""
    return SCHEMA.with_metadata({METADATA_KEY: json.dumps(info.as_dict()).encode()})


def read(path: Path, columns: Sequence[str] | None = None) -> tuple[pa.Table, TraceInfo]:
    """Return a trace in the order of issue, or some of its columns, and what is known about it.

    Raises:
        TraceError: the file is missing, damaged, or of another version.
    """
    info = read_info(path)
    wanted = list(dict.fromkeys([*(columns or SCHEMA.names), "issue_ns"]))
    try:
        table = pq.read_table(path, columns=wanted)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from None
    return table.sort_by("issue_ns").select(list(columns or SCHEMA.names)), info


def read_info(path: Path) -> TraceInfo:
    """Return what the metadata of a trace's file says, without reading its rows; raises as `read` does."""
    try:
        metadata = pq.read_metadata(path).metadata or {}
        content = json.loads(metadata[METADATA_KEY])
        version = content.pop("version")
    except FileNotFoundError:
        raise TraceError(f"{path} does not exist; measure with trace=block_requests or trace=nvme_commands") from None
    except KeyError:
        raise TraceError(f"{path} does not say that it is a trace of device I/O; {_AGAIN}") from None
    except (OSError, ValueError, AttributeError, pa.ArrowException) as error:
        raise _damaged(path, error) from None
    if version != VERSION:
        raise TraceError(f"{path} has version {version} and this program reads {VERSION}; {_AGAIN}")
    return TraceInfo(**content)


def _damaged(path: Path, error: Exception) -> TraceError:
    return TraceError(f"{path} is damaged ({' '.join(str(error).split())[:200]}); {_AGAIN}")
