"""One record for each tensor-level operation, kept in memory and written once, at the end of the run."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dualblade.linux.files import replacing


@dataclass(frozen=True)
class Operation:
    """A read or a write of some rows of one tensor: the transfer to or from storage, and the copy over the link.

    Times are CLOCK_MONOTONIC nanoseconds. On the page-cache paths, device bytes are the block I/O that the kernel
    accounted to the copy thread during the operation (getrusage: ru_inblock, ru_oublock). The kernel does not account
    native NVMe commands, so on the direct path they are the bytes that completed commands moved. A buffered write is
    accounted when it dirties a page. It may also read: the rest of a page that it changes in part, and readahead.
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
    """Let Arrow allocate its memory for writing now, before the limit is set."""
    pq.write_table(_table([]), pa.BufferOutputStream())


def write_log(operations: Iterable[Operation], path: Path) -> None:
    """Write the operations as Parquet; the file appears when it is complete."""
    with replacing(path) as partial:
        pq.write_table(_table(list(operations)), partial)


def _table(operations: Sequence[Operation]) -> pa.Table:
    """Build the table from buffers: to convert Python objects, Arrow imports pandas, slow on an emulated CPU."""
    columns = [_column(field.type, [getattr(operation, field.name) for operation in operations]) for field in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _column(kind: pa.DataType, values: Sequence[int] | Sequence[str]) -> pa.Array:
    if kind == pa.int64():
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array("q", values))])
    encoded = [str(value).encode() for value in values]
    offsets = array("i", itertools.accumulate(map(len, encoded), initial=0))
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))])
