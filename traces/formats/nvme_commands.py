"""Reads what nvme_commands.bt prints: commands to NVMe controllers, by block layer or by passthrough alike."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traces.devices import Devices
from traces.events import DEALLOCATE, FLUSH, OTHER, READ, WRITE, Events
from traces.text import Account, LineFormat
from traces.whole_commands import both_events

_NUMBER = pa.int64()
_NAME = pa.dictionary(pa.int32(), pa.string())
_LINES = LineFormat(
    {
        "issue_ns": _NUMBER,
        "complete_ns": _NUMBER,
        "ctrl": _NUMBER,
        "queue": _NUMBER,
        "cid": _NUMBER,
        "opcode": _NUMBER,
        "slba": _NUMBER,
        "nlb": _NUMBER,
        "status": _NUMBER,
        "disk": _NAME,
    },
    rb"\d{1,18},\d{1,18},\d{1,5},\d{1,5},\d{1,5},\d{1,3},\d{1,15},\d{1,5},\d{1,5},\w*",
)

# NVM command set, opcodes of I/O commands.
_OPCODES = {0x00: FLUSH, 0x01: WRITE, 0x02: READ, 0x09: DEALLOCATE}


def parse(block: bytes, devices: Devices, account: Account) -> Events:
    """The events of a block of lines. The ranges of a deallocate are in its data, which the trace does not have."""
    table = _LINES.parse(block, account)
    device = devices.named(table["disk"].combine_chunks())
    opcode = table["opcode"].to_numpy()
    op = np.full(len(table), OTHER, np.int8)
    for number, meaning in _OPCODES.items():
        op[opcode == number] = meaning
    moves = (op == READ) | (op == WRITE)
    lba_bytes = devices.lba_bytes(device)
    return both_events(
        account,
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
