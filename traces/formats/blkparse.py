"""Reads blkparse's default output (man 1 blkparse): actions D (issued to the driver), C (completed), R (requeued)."""

from __future__ import annotations

import re

import numpy as np

from traces.devices import MINOR_BITS, Devices
from traces.events import COMPLETE, DEALLOCATE, FLUSH, ISSUE, READ, REQUEUE, SECTOR_BYTES, WRITE, Events, make_events
from traces.formats.block_requests import operation
from traces.lines import nanoseconds, rows
from traces.text import Account

# device, CPU, sequence, seconds, process, action, rwbs, then for most actions sector + sectors, then process or [error]
_LINE = re.compile(
    rb"\s*(\d+),(\d+)\s+(\d+)\s+\d+\s+(\d+\.\d+)\s+-?\d+\s+([A-Z]+)\s+([A-Z]+|N)(?:\s+(\d+)\s+\+\s+(\d+))?(?:\s.*?)?(?:\[(-?\d+)\])?\s*"
)
# The summary at the end, and lines of actions that have a form of their own (plug, unplug, message).
_CHATTER = re.compile(
    rb"|CPU\d+.*|Total.*|Throughput.*|Events.*|Skips.*|\s+(?:Reads?|Writes?|PC|IO|Queue|Allocation|Dispatch|Merges).*"
    rb"|\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+-?\d+\s+(?:P|U|UT|m)\s.*"
)
_KINDS = {b"D": ISSUE, b"C": COMPLETE, b"R": REQUEUE}
_ADDRESSED = (READ, WRITE, DEALLOCATE)


def parse(block: bytes, devices: Devices, account: Account) -> Events:
    """The events of a block of lines; actions before the driver are passed over."""
    found: list[tuple[int, ...]] = []
    for match in rows(block, _LINE, _CHATTER, account):
        kind = _KINDS.get(match[5])
        if kind is not None:
            op = operation(match[6].decode())
            device = int(match[1]) << MINOR_BITS | int(match[2])
            fields = (int(match[7] or 0), int(match[8] or 0), abs(int(match[9] or 0)))
            found.append((kind, nanoseconds(match[4], 9), device, int(match[3]), op, *fields))
    account.printed_events += len(found)
    kind_, ns, number, cpu, op_, sector, sectors, error = np.array(found, np.int64).reshape(-1, 8).T
    device_ = devices.indices(number)
    return make_events(
        len(found),
        kind=kind_,
        ns=ns,
        device=device_,
        queue=devices.queues(device_, cpu),
        op=op_,
        offset_bytes=np.where(np.isin(op_, _ADDRESSED), sector * SECTOR_BYTES, -1),
        bytes=np.where(op_ == FLUSH, 0, sectors * SECTOR_BYTES),
        status=error,
        key=(device_.astype(np.int64) << 56) | (op_ << 52) | sector,
    )
