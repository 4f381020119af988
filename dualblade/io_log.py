"""One record for each tensor-level operation, kept in memory and written once, at the end of the run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True)
class Operation:
    """A read or a write of some rows of one tensor: the transfer to or from storage, and the copy over the link.

    Times are CLOCK_MONOTONIC nanoseconds. The device's bytes are what the kernel accounted to the copy thread as block
    I/O during the operation (getrusage: ru_inblock, ru_oublock); it accounts no native NVMe commands, so of them it is
    what the completed ones moved. A buffered write is accounted when it dirties a page, and it may read: the rest of a
    page that it changes in part, and what readahead takes along.
    """

    phase: str
    iteration: int
    layer: int
    kind: str
    op: str
    path: str
    thread: int
    first_row: int
    rows: int
    bytes: int
    device_read_bytes: int
    device_written_bytes: int
    storage_start_ns: int
    storage_end_ns: int
    link_start_ns: int
    link_end_ns: int


_ARROW = {"str": pa.string(), "int": pa.int64()}
SCHEMA = pa.schema([(f.name, _ARROW[str(f.type)]) for f in fields(Operation)])


def prepare_log() -> None:
    """Let Arrow allocate what it needs to write now, before memory is limited."""
    pq.write_table(SCHEMA.empty_table(), pa.BufferOutputStream())


def write_log(operations: Iterable[Operation], path: Path) -> None:
    """Write the operations as Parquet, complete or not at all."""
    table = pa.Table.from_pylist([asdict(operation) for operation in operations], schema=SCHEMA)
    partial = path.with_name(f".{path.name}.partial")
    pq.write_table(table, partial)
    os.replace(partial, path)
