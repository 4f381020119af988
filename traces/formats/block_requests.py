"""Reads what block_requests.bt prints: requests of the block layer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traces.devices import Devices
from traces.events import DEALLOCATE, FLUSH, OTHER, READ, SECTOR_BYTES, WRITE, Events
from traces.text import Account, LineFormat
from traces.whole_commands import both_events

_NUMBER = pa.int64()
_NAME = pa.dictionary(pa.int32(), pa.string())
COLUMNS = {
    "issue_ns": _NUMBER,
    "complete_ns": _NUMBER,
    "dev": _NUMBER,
    "cpu": _NUMBER,
    "sector": _NUMBER,
    "bytes": _NUMBER,
    "error": _NUMBER,
    "rwbs": _NAME,
}
PATTERN = rb"\d{1,18},\d{1,18},\d{1,10},\d{1,5},\d{1,16},\d{1,12},-?\d{1,9},[A-Z]+"
_LINES = LineFormat(COLUMNS, PATTERN)


def parse(block: bytes, devices: Devices, account: Account) -> Events:
    """The events of a block of lines."""
    return events(_LINES.parse(block, account), devices, account)


def events(table: pa.Table, devices: Devices, account: Account) -> Events:
    """The events of parsed lines, which may have more columns."""
    device = devices.indices(table["dev"].to_numpy())
    op = by_rwbs(table["rwbs"])
    return both_events(
        account,
        issue_ns=table["issue_ns"].to_numpy(),
        complete_ns=table["complete_ns"].to_numpy(),
        device=device,
        queue=devices.queues(device, table["cpu"].to_numpy()),
        op=op,
        offset_bytes=np.where(op == FLUSH, -1, table["sector"].to_numpy() * SECTOR_BYTES),
        bytes=table["bytes"].to_numpy(),
        status=np.abs(table["error"].to_numpy()),
    )


def by_name(column: pa.ChunkedArray, numbers: dict[str, int], unknown: int) -> npt.NDArray[np.int8]:
    """Numbers for the names in a dictionary column."""
    names = column.combine_chunks()
    if not len(names):
        return np.zeros(0, np.int8)
    table = np.array([numbers.get(name, unknown) for name in names.dictionary.to_pylist()] or [unknown], np.int8)
    places: npt.NDArray[np.int32] = names.indices.to_numpy()
    return table[places]


def by_rwbs(column: pa.ChunkedArray) -> npt.NDArray[np.int8]:
    """Operations for the block layer's letters (Linux, kernel/trace/blktrace.c, blk_fill_rwbs)."""
    names = column.combine_chunks()
    known = names.dictionary.to_pylist() if len(names) else []
    return by_name(column, {name: operation(name) for name in known}, OTHER)


def operation(rwbs: str) -> int:
    """The operation that letters such as RA, WFS or FF mean: a first F before another operation is a preflush."""
    rwbs = rwbs.strip()
    letters = rwbs[1:] if rwbs[:1] == "F" and rwbs[1:2] in tuple("RWDF") else rwbs
    return {"R": READ, "W": WRITE, "D": DEALLOCATE, "F": FLUSH}.get(letters[:1], OTHER)
