"""Reads what nvme_commands.bt prints: commands to NVMe controllers, by block layer or by passthrough alike."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traces.block_requests import by_name, only_known
from traces.devices import Devices
from traces.events import COMPLETE, DEALLOCATE, FLUSH, ISSUE, OTHER, READ, WRITE, Events, make_events
from traces.text import Account, LineFormat

_NUMBER = pa.int64()
_NAME = pa.dictionary(pa.int32(), pa.string())
_LINES = LineFormat(
    {
        "kind": _NAME,
        "ns": _NUMBER,
        "ctrl": _NUMBER,
        "queue": _NUMBER,
        "cid": _NUMBER,
        "code": _NUMBER,
        "slba": pa.uint64(),
        "nlb": _NUMBER,
        "disk": _NAME,
    },
    rb"[IC],\d{1,18},\d{1,5},\d{1,5},\d{1,5},\d{1,5},\d{1,19},\d{1,5},\w*",
)
_KINDS = {"I": ISSUE, "C": COMPLETE}

# NVM command set, opcodes of I/O commands.
_OPCODES = {0x00: FLUSH, 0x01: WRITE, 0x02: READ, 0x09: DEALLOCATE}


def parse(block: bytes, devices: Devices, account: Account) -> Events:
    """The events of a block of lines. The ranges of a deallocate are in its data, which the trace does not have."""
    table = _LINES.parse(block, account)
    kind = by_name(table["kind"], _KINDS, unknown=-1)
    disk = table["disk"].combine_chunks()
    device = devices.named(disk)
    code = table["code"].to_numpy()
    issue = kind == ISSUE
    op = np.full(len(table), OTHER, np.int8)
    for opcode, meaning in _OPCODES.items():
        op[issue & (code == opcode)] = meaning
    moves = (op == READ) | (op == WRITE)
    lba_bytes = devices.lba_bytes(device)
    slba = table["slba"].to_numpy().astype(np.int64)
    queue, cid = table["queue"].to_numpy(), table["cid"].to_numpy()
    events = make_events(
        len(table),
        kind=kind,
        ns=table["ns"].to_numpy(),
        device=device,
        queue=queue,
        cid=cid,
        op=op,
        offset_bytes=np.where(moves, slba * lba_bytes, -1),
        bytes=np.where(moves, (table["nlb"].to_numpy() + 1) * lba_bytes, 0),
        status=np.where(issue, 0, code),
        key=(table["ctrl"].to_numpy() << 40) | (queue << 20) | cid,
    )
    return only_known(events, account)
