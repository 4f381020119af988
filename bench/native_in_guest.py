"""Runs in the guest: our ring and fio's io_uring_cmd engine on the same blocks, in turn; prints one JSON object.

`python native_in_guest.py SERIAL LBA_BYTES ours|fio OP:DEPTH ...`: whose turn is first; partition 2 of that SSD is
overwritten.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, cast

from dualblade.config.storage import StorageConfig
from dualblade.paths.ring import Op, Pending, Ring
from dualblade.targets.nvme import NvmeTarget
from dualblade.units import KIB

MAX_CHUNK_BYTES = 512 * KIB
CHUNKS = 32  # of a tensor, which is then about 16 MiB
TENSORS = 16
WINDOW = 4  # tensors queued at once, each with a buffer of its own, as overlap-full keeps them
HUGE_PAGE_BYTES = 2 << 20
TIMEOUT_S = 60.0


class Memory:
    """Aligned to a huge page, in huge pages where the kernel grants them."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._data = mmap.mmap(-1, size_bytes + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._data.madvise(mmap.MADV_HUGEPAGE)
        self._data.write(bytes(len(self._data)))
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._data))
        self.address = -(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES


class Blocks:
    """The blocks under test, and our way to move them."""

    def __init__(self, storage: StorageConfig) -> None:
        self._lba_bytes = storage.lba_bytes
        self.target = NvmeTarget(storage, TENSORS * CHUNKS * storage.chunk_bytes)
        self.tensor_bytes = CHUNKS * self.target.chunk_bytes
        self.size_bytes = TENSORS * self.tensor_bytes
        self._memory = Memory(WINDOW * self.tensor_bytes)

    def move(self, op: Op, depth: int) -> dict[str, float]:
        """All tensors, one after the other, with the next ones queued behind."""
        target = self.target
        bounds = {"first_byte": target.first_byte, "end_byte": target.first_byte + self.size_bytes}
        with Ring(
            *(target.fd, str(target)),
            **bounds,
            queue_depth=depth,
            block_bytes=self._lba_bytes,
            namespace_id=target.namespace_id,
        ) as ring:
            ring.register(self._memory.address, self._memory.size_bytes, target.chunk_bytes, self.tensor_bytes)
            start_s, start_cpu_s = time.perf_counter(), time.process_time()
            started: deque[Pending] = deque()
            for tensor in range(TENSORS):
                if len(started) == WINDOW:
                    ring.wait(started.popleft(), TIMEOUT_S)
                started.append(self._start(ring, op, tensor))
            while started:
                ring.wait(started.popleft(), TIMEOUT_S)
            return self._rates(time.perf_counter() - start_s, time.process_time() - start_cpu_s)

    def _start(self, ring: Ring, op: Op, tensor: int) -> Pending:
        address = self._memory.address + tensor % WINDOW * self.tensor_bytes
        offset = self.target.first_byte + tensor * self.tensor_bytes
        return ring.start(op, self._memory, address, offset, self.tensor_bytes, self.target.chunk_bytes)

    def _rates(self, seconds: float, cpu_s: float) -> dict[str, float]:
        return {"gb_per_s": self.size_bytes / seconds / 1e9, "cpu_s_per_gb": cpu_s / (self.size_bytes / 1e9)}

    def fio(self, op: Op, depth: int) -> dict[str, float]:
        """Move all tensors by fio at its best: registered file and buffers, in huge pages."""
        command = [
            "fio",
            "--name=bench",
            f"--filename={self.target.device_facts()['character_device']}",
            "--ioengine=io_uring_cmd",
            "--cmd_type=nvme",
            f"--rw={op}",
            f"--bs={self.target.chunk_bytes}",
            f"--iodepth={depth}",
            f"--offset={self.target.first_byte}",
            f"--size={self.size_bytes}",
            "--registerfiles=1",
            "--fixedbufs=1",
            "--iomem=mmaphuge",
            f"--hugepage-size={HUGE_PAGE_BYTES}",
            "--thread",
            "--output-format=json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
        job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
        seconds = job[op]["io_bytes"] / job[op]["bw_bytes"]
        return self._rates(seconds, (job["usr_cpu"] + job["sys_cpu"]) / 100 * seconds)


def main(serial: str, lba_bytes: str, first: str, kinds: list[str]) -> None:
    reserve_huge_pages()
    with tempfile.TemporaryDirectory() as records:
        storage = StorageConfig(
            *("bench", records, "nvme"),
            serial=serial,
            partition=2,
            lba_bytes=int(lba_bytes),
            chunk_bytes=MAX_CHUNK_BYTES,
        )
        blocks = Blocks(storage)
        try:
            print(json.dumps(measured(blocks, first, kinds)))
        finally:
            blocks.target.close()


def measured(blocks: Blocks, first: str, kinds: list[str]) -> dict[str, Any]:
    blocks.move("write", 8)  # blocks that were never written cost the first writer more, and readers less
    found = {}
    for kind in kinds:
        op, depth = cast(Op, kind.partition(":")[0]), int(kind.partition(":")[2])
        turns = {"ours": blocks.move, "fio": blocks.fio}
        found[kind] = {side: turns[side](op, depth) for side in sorted(turns, key=lambda side: side != first)}
    return found


def reserve_huge_pages() -> None:
    """For fio's buffers, 32 of half a MiB; the guest is ours to set up."""
    Path("/proc/sys/vm/nr_hugepages").write_text("24")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
