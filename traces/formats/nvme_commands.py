"""Reads the text of nvme_commands.bt: NVMe commands, by block layer or by passthrough, one whole command a line."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traces.commands import DEALLOCATE, FLUSH, OTHER, READ, WRITE, Array, whole_commands
from traces.devices import Devices
from traces.text import LineCounts, LineFormat

_NUMBERS = ("issue_ns", "complete_ns", "ctrl", "queue", "cid", "opcode", "slba", "nlb", "status")
_LINES = LineFormat(
    {**dict.fromkeys(_NUMBERS, pa.int64()), "disk": pa.dictionary(pa.int32(), pa.string())},
    rb"\d{1,18},\d{1,18},\d{1,5},\d{1,5},\d{1,5},\d{1,3},\d{1,15},\d{1,5},\d{1,5},\w*",
)

# NVM command set, opcodes of I/O commands.
_OPCODES = {0x00: FLUSH, 0x01: WRITE, 0x02: READ, 0x09: DEALLOCATE}


def parse(block: bytes, devices: Devices, counts: LineCounts) -> Array:
    """Return the commands of a block of lines. The trace does not have the ranges of a deallocate: they are data."""
    table = _LINES.parse(block, counts)
    device = devices.by_name(table["disk"].combine_chunks())
    opcode = table["opcode"].to_numpy()
    op = np.full(len(table), OTHER, np.int8)
    for number, meaning in _OPCODES.items():
        op[opcode == number] = meaning
    moves = (op == READ) | (op == WRITE)
    lba_bytes = devices.lba_bytes(device)
    return whole_commands(
        counts,
        issue_ns=table["issue_ns"].to_numpy(),
        complete_ns=table["complete_ns"].to_numpy(),
        device=device,
        queue=table["queue"].to_numpy(),
        cid=table["cid"].to_numpy(),
        op=op,
        offset_bytes=np.where(moves, table["slba"].to_numpy() * lba_bytes, -1),
        bytes=np.where(moves, (table["nlb"].to_numpy() + 1) * lba_bytes, 0),
        status=table["status"].to_numpy(),
    )
