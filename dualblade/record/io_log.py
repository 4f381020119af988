"""One record for each tensor-level operation, kept in memory and written once, at the end of the run."""

from __future__ import annotations

import itertools
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
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
    pq.write_table(_table([]), pa.BufferOutputStream())


def write_log(operations: Iterable[Operation], path: Path) -> None:
    """Write the operations as Parquet, complete or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    pq.write_table(_table(list(operations)), partial)
    os.replace(partial, path)


def _table(operations: Sequence[Operation]) -> pa.Table:
    """From buffers: Arrow's conversion of Python objects imports pandas first, which an emulated CPU takes long for."""
    columns = [_column(field.type, [getattr(operation, field.name) for operation in operations]) for field in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _column(kind: pa.DataType, values: Sequence[int] | Sequence[str]) -> pa.Array:
    if kind == pa.int64():
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array("q", values))])
    encoded = [str(value).encode() for value in values]
    offsets = array("i", itertools.accumulate(map(len, encoded), initial=0))
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))])
