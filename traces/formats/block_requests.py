"""Reads the text of block_requests.bt: requests of the block layer, one whole request a line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traces.commands import DEALLOCATE, FLUSH, OTHER, READ, SECTOR_BYTES, WRITE, Array, whole_commands
from traces.devices import Devices
from traces.text import LineCounts, LineFormat

COLUMNS = {
    **dict.fromkeys(("issue_ns", "complete_ns", "dev", "cpu", "sector", "bytes", "error"), pa.int64()),
    "rwbs": pa.dictionary(pa.int32(), pa.string()),
}
PATTERN = rb"\d{1,18},\d{1,18},\d{1,10},\d{1,5},\d{1,16},\d{1,12},-?\d{1,9},[A-Z]+"
_LINES = LineFormat(COLUMNS, PATTERN)


def parse(block: bytes, devices: Devices, counts: LineCounts) -> Array:
    """Return the commands of a block of lines."""
    return commands(_LINES.parse(block, counts), devices, counts)


def commands(table: pa.Table, devices: Devices, counts: LineCounts) -> Array:
    """Return the commands of parsed lines, which may have more columns."""
    device = devices.by_dev(table["dev"].to_numpy())
    op = operations(table["rwbs"])
    return whole_commands(
        counts,
        issue_ns=table["issue_ns"].to_numpy(),
        complete_ns=table["complete_ns"].to_numpy(),
        device=device,
        queue=devices.queues(device, table["cpu"].to_numpy()),
        op=op,
        offset_bytes=np.where(op == FLUSH, -1, table["sector"].to_numpy() * SECTOR_BYTES),
        bytes=table["bytes"].to_numpy(),
        status=np.abs(table["error"].to_numpy()),
    )


def operations(rwbs: pa.ChunkedArray) -> npt.NDArray[np.int8]:
    """Return the operations that a column of the block layer's letters means."""
    letters = rwbs.combine_chunks()
    if not len(letters):
        return np.zeros(0, np.int8)
    meanings = np.array([operation(value) for value in letters.dictionary.to_pylist()], np.int8)
    places: npt.NDArray[np.int32] = letters.indices.to_numpy()
    return meanings[places]


def operation(rwbs: str) -> int:
    """Return the operation that letters such as RA, WFS or FF mean (Linux, kernel/trace/blktrace.c, blk_fill_rwbs).

    A first F before another operation is a preflush.
    """
    rwbs = rwbs.strip()
    letters = rwbs[1:] if rwbs[:1] == "F" and rwbs[1:2] in tuple("RWDF") else rwbs
    return {"R": READ, "W": WRITE, "D": DEALLOCATE, "F": FLUSH}.get(letters[:1], OTHER)
