"""Reads what block_requests.bt prints: requests of the block layer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traces.devices import Devices
from traces.events import (
    COMPLETE,
    DEALLOCATE,
    FLUSH,
    ISSUE,
    OTHER,
    READ,
    REQUEUE,
    SECTOR_BYTES,
    WRITE,
    Events,
    make_events,
)
from traces.text import Account, LineFormat

_NUMBER = pa.int64()
_NAME = pa.dictionary(pa.int32(), pa.string())
_LINES = LineFormat(
    {
        "kind": _NAME,
        "ns": _NUMBER,
        "dev": _NUMBER,
        "cpu": _NUMBER,
        "sector": _NUMBER,
        "bytes": _NUMBER,
        "error": _NUMBER,
        "rwbs": _NAME,
    },
    rb"[ICR],\d{1,18},\d{1,10},\d{1,5},\d{1,16},\d{1,12},-?\d{1,9},[A-Z]+",
)
_KINDS = {"I": ISSUE, "C": COMPLETE, "R": REQUEUE}


def parse(block: bytes, devices: Devices, account: Account) -> Events:
    """The events of a block of lines."""
    table = _LINES.parse(block, account)
    kind = by_name(table["kind"], _KINDS, unknown=-1)
    device = devices.indices(table["dev"].to_numpy())
    op = by_rwbs(table["rwbs"])
    sector = table["sector"].to_numpy()
    events = make_events(
        len(table),
        kind=kind,
        ns=table["ns"].to_numpy(),
        device=device,
        queue=devices.queues(device, table["cpu"].to_numpy()),
        op=op,
        offset_bytes=np.where(op == FLUSH, -1, sector * SECTOR_BYTES),
        bytes=table["bytes"].to_numpy(),
        status=np.abs(table["error"].to_numpy()),
        key=(device.astype(np.int64) << 56) | (op.astype(np.int64) << 52) | sector,
    )
    return only_known(events, account)


def only_known(events: Events, account: Account) -> Events:
    """Without the events whose first letter is none of ours, which are counted as broken lines."""
    known = events.kind >= 0
    account.printed_events += int(known.sum())
    if known.all():
        return events
    for _ in range(int((~known).sum())):
        account.broken(b"a line of an unknown kind")
    return events.take(known)


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
    letters = rwbs[1:] if rwbs[:1] == "F" and rwbs[1:2] in tuple("RWDF") else rwbs
    return {"R": READ, "W": WRITE, "D": DEALLOCATE, "F": FLUSH}.get(letters[:1], OTHER)
