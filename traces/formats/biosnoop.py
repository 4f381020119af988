"""Reads what biosnoop of bcc or libbpf-tools prints: TIME(s) COMM PID DISK T SECTOR BYTES [QUE(ms)] LAT(ms).

TIME is when a request completed, and LAT since it was issued, in thousandths of a millisecond at best.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from traces.devices import Devices
from traces.events import FLUSH, SECTOR_BYTES, Events
from traces.formats.block_requests import operation
from traces.lines import nanoseconds, rows
from traces.text import Account
from traces.whole_commands import both_events

_LINE = re.compile(
    rb"\s*(\d+\.\d+)\s+.*?\s+-?\d+\s+(\S+)\s+([A-Z]+)\s+(-?\d+)\s+(\d+)(?:\s+\d+(?:\.\d+)?)?\s+(\d+(?:\.\d+)?)\s*"
)
_CHATTER = re.compile(rb"|\s*TIME\(s\).*|Tracing block device I/O.*")


def parse(block: bytes, devices: Devices, account: Account) -> Events:
    """The events of a block of lines."""
    found, disks = [], []
    for match in rows(block, _LINE, _CHATTER, account):
        done_ns = nanoseconds(match[1], 9)
        issue_ns = done_ns - nanoseconds(match[6], 6)
        found.append((issue_ns, done_ns, operation(match[3].decode()), int(match[4]), int(match[5])))
        disks.append(match[2].decode(errors="replace"))
    issue, done, op, sector, size = np.array(found, np.int64).reshape(-1, 5).T
    return both_events(
        account,
        issue_ns=issue,
        complete_ns=done,
        device=devices.named(pa.array(disks, pa.string()).dictionary_encode()),
        op=op,
        offset_bytes=np.where((op == FLUSH) | (sector < 0), -1, sector * SECTOR_BYTES),
        bytes=size,
        status=np.zeros(len(found), np.int64),
    )
