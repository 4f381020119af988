"""Run inside a cgroup by test_budget: measures B_pc, then re-reads a file of that size times a ratio, as JSON."""

from __future__ import annotations

import json
import mmap
import os
import sys
from pathlib import Path

from dualblade.plan.budget import measure_budget

MIB = 2**20


def allocate(size_bytes: int) -> mmap.mmap:
    """Private memory, every page touched."""
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, size_bytes, mmap.PAGESIZE):
        memory[offset] = 1
    return memory


def write(file: int, size_bytes: int) -> None:
    block = os.urandom(MIB)
    for _ in range(size_bytes // MIB):
        os.write(file, block)


def read(file: int, into: bytearray) -> int:
    """Read the whole file; returns the bytes that the device had to deliver (proc(5), /proc/self/io)."""
    before_bytes = device_read_bytes()
    offset = 0
    while done := os.preadv(file, [into], offset):
        offset += done
    return device_read_bytes() - before_bytes


def device_read_bytes() -> int:
    rows = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(rows["read_bytes"])


def main(cgroup: Path, path: Path, ratio: float, buffer_bytes: int) -> None:
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    scratch = bytearray(MIB)
    before = measure_budget()
    buffer = allocate(buffer_bytes)
    allocated = measure_budget()
    size_bytes = int(allocated.b_pc_bytes * ratio) // MIB * MIB
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    write(file, size_bytes)
    dirty = measure_budget()
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    device_bytes = [read(file, scratch) for _ in range(3)]
    buffer.close()
    budgets = {"before": before, "allocated": allocated, "dirty": dirty}
    report = {name: vars(budget) for name, budget in budgets.items()}
    print(json.dumps({**report, "size_bytes": size_bytes, "device_bytes": device_bytes}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
