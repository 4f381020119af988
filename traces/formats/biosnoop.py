"""Reads the text of biosnoop (bcc, libbpf-tools): TIME(s) COMM PID DISK T SECTOR BYTES [QUE(ms)] LAT(ms).

TIME is the completion of a request. LAT is the time since its issue, printed with at most three decimals.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from traces.commands import FLUSH, SECTOR_BYTES, Array, whole_commands
from traces.devices import Devices
from traces.formats.block_requests import operation
from traces.text import LineCounts, fixed_point, matching_lines

_LINE = re.compile(
    rb"\s*(\d+\.\d+)\s+.*?\s+-?\d+\s+(\S+)\s+([A-Z]+)\s+(-?\d+)\s+(\d+)(?:\s+\d+(?:\.\d+)?)?\s+(\d+(?:\.\d+)?)\s*"
)
_NO_DATA = re.compile(rb"|\s*TIME\(s\).*|Tracing block device I/O.*")


def parse(block: bytes, devices: Devices, counts: LineCounts) -> Array:
    """Return the commands of a block of lines."""
    found, disks = [], []
    for match in matching_lines(block, _LINE, _NO_DATA, counts):
        complete_ns = fixed_point(match[1], 9)
        issue_ns = complete_ns - fixed_point(match[6], 6)
        found.append((issue_ns, complete_ns, operation(match[3].decode()), int(match[4]), int(match[5])))
        disks.append(match[2].decode(errors="replace"))
    issue, complete, op, sector, size = np.array(found, np.int64).reshape(-1, 5).T
    return whole_commands(
        counts,
        issue_ns=issue,
        complete_ns=complete,
        device=devices.by_name(pa.array(disks, pa.string()).dictionary_encode()),
        op=op,
        offset_bytes=np.where((op == FLUSH) | (sector < 0), -1, sector * SECTOR_BYTES),
        bytes=size,
        status=0,
    )
