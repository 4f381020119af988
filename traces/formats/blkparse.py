"""Reads the default output of blkparse (man 1 blkparse): actions D (issue), C (completion), R (requeue)."""

from __future__ import annotations

import re

import numpy as np

from traces.commands import DEALLOCATE, FLUSH, READ, SECTOR_BYTES, WRITE, Array, records
from traces.devices import MINOR_BITS, Devices
from traces.formats.block_requests import operation
from traces.pairing import COMPLETE, EVENT, ISSUE, REQUEUE
from traces.text import LineCounts, fixed_point, matching_lines

# device, CPU, sequence, seconds, process, action, rwbs, then for most actions sector + sectors, then process or [error]
_LINE = re.compile(
    rb"\s*(\d+),(\d+)\s+(\d+)\s+\d+\s+(\d+\.\d+)\s+-?\d+\s+([A-Z]+)\s+([A-Z]+|N)(?:\s+(\d+)\s+\+\s+(\d+))?(?:\s.*?)?(?:\[(-?\d+)\])?\s*"
)
# The summary at the end, and lines of actions that have a form of their own (plug, unplug, message).
_NO_DATA = re.compile(
    rb"|CPU\d+.*|Total.*|Throughput.*|Events.*|Skips.*|\s+(?:Reads?|Writes?|PC|IO|Queue|Allocation|Dispatch|Merges).*"
    rb"|\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+-?\d+\s+(?:P|U|UT|m)\s.*"
)
_KINDS = {b"D": ISSUE, b"C": COMPLETE, b"R": REQUEUE}
_ADDRESSED = (READ, WRITE, DEALLOCATE)


def parse(block: bytes, devices: Devices, counts: LineCounts) -> Array:
    """Return the events of a block of lines; actions before the driver are left out."""
    found: list[tuple[int, ...]] = []
    for match in matching_lines(block, _LINE, _NO_DATA, counts):
        kind = _KINDS.get(match[5])
        if kind is not None:
            op = operation(match[6].decode())
            dev = int(match[1]) << MINOR_BITS | int(match[2])
            fields = (int(match[7] or 0), int(match[8] or 0), abs(int(match[9] or 0)))
            found.append((kind, fixed_point(match[4], 9), dev, int(match[3]), op, *fields))
    counts.printed_events += len(found)
    kinds, ns, devs, cpu, ops, sector, sectors, error = np.array(found, np.int64).reshape(-1, 8).T
    device = devices.by_dev(devs)
    return records(
        EVENT,
        len(found),
        kind=kinds,
        issue_ns=ns,
        device=device,
        queue=devices.queues(device, cpu),
        op=ops,
        offset_bytes=np.where(np.isin(ops, _ADDRESSED), sector * SECTOR_BYTES, -1),
        bytes=np.where(ops == FLUSH, 0, sectors * SECTOR_BYTES),
        status=error,
        key=(device.astype(np.int64) << 56) | (ops << 52) | sector,
    )
