"""Runs in the guest: native commands with and without polling for their completion; prints one JSON object.

`python polling.py SERIAL LBA_BYTES`: which queues took the commands, how often the controller interrupted while
they were under way, and whether an ioctl, which shares nothing with the ring, reads what was written.
"""

from __future__ import annotations

import dataclasses
import json
import random
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from dualblade.config.storage import StorageConfig
from dualblade.linux.nvme_namespace import find
from dualblade.units import MIB
from tests.system.guest.direct_path import Memory, read_raw, ring_on, target_for, tracing, transfer

SIZE_BYTES = 4 * MIB
QUEUE = re.compile(r"qid=(\d+), .*cmd=\(nvme_cmd_(?:read|write) slba")
HARDWARE_QUEUES = Path("/sys/kernel/debug/block")


def main(serial: str, lba_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as records:
        print(json.dumps({name: moved(serial, lba_bytes, records, name == "polled") for name in ("polled", "waited")}))


def moved(serial: str, lba_bytes: int, records: str, iopoll: bool) -> dict[str, Any]:
    """Write and read back by one ring, which may poll on kernels that several must not poll on at once."""
    storage = StorageConfig(
        "nvme", records, backend="nvme", serial=serial, partition=2, lba_bytes=lba_bytes, iopoll=iopoll
    )
    block_device, memory, content = find(serial).block_device, Memory(SIZE_BYTES), random.randbytes(SIZE_BYTES)
    unpolled = dataclasses.replace(storage, iopoll=False)
    with target_for(unpolled, SIZE_BYTES) as target, ring_on(storage, target, SIZE_BYTES) as ring:
        with tracing() as commands:
            before = interrupts(block_device.name)
            memory.data[:] = content
            transfer(ring, "write", memory, target.first_byte, SIZE_BYTES)
            memory.data[:] = bytes(SIZE_BYTES)
            transfer(ring, "read", memory, target.first_byte, SIZE_BYTES)
            interrupted = interrupts(block_device.name) - before
        same = [memory.data[:] == content, read_raw(target, storage, target.first_byte, SIZE_BYTES) == content]
    queues = [int(found[1]) for line in commands if (found := QUEUE.search(line))]
    types = {turn: kind_of(block_device.name, turn) for turn in set(queues)}
    return {"commands": len(queues), "types": sorted(set(types.values())), "interrupts": interrupted, "same": same}


def kind_of(node: str, queue: int) -> str:
    """What the block layer takes the queue for; the admin queue is number 0 of the device and not among its own."""
    return (HARDWARE_QUEUES / node / f"hctx{queue - 1}/type").read_text().strip()


def interrupts(node: str) -> int:
    """Of the node's controller so far, by its queues for I/O."""
    name = re.compile(rf"{node.removesuffix('n1')}q[1-9]\d*$")
    lines = [line.split() for line in Path("/proc/interrupts").read_text().splitlines()]
    return sum(sum(int(word) for word in line[1:] if word.isdigit()) for line in lines if name.match(line[-1]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
