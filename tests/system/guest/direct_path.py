"""Runs in the guest: native commands to both SSDs, traced, failing and killed; prints one JSON object.

`python direct_path.py KILLS SERIAL:LBA_BYTES:BAD_READ:BAD_WRITE ...`: bad blocks are LBAs of the namespace, or 0.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dualblade.config.storage import StorageConfig
from dualblade.errors import StorageError
from dualblade.geometry import KVGeometry, TensorId
from dualblade.linux import nvme_command
from dualblade.paths.ring import Op, Ring
from dualblade.plan.extents import LbaMap, bind
from dualblade.targets import leftovers
from dualblade.targets.nvme import NvmeTarget
from dualblade.units import MIB

TRACING = Path("/sys/kernel/tracing")
EVENT = TRACING / "events/nvme/nvme_setup_cmd/enable"
GUARD_BYTES = 2 * MIB
DEPTH = 8

# Rows that fill whole blocks, that do not, and that are larger than a command; tensors of few and of many commands.
GEOMETRIES = {
    "whole blocks": KVGeometry.uniform(2, 4, 64, batch_size=8, capacity_tokens=96),
    "odd rows": KVGeometry.uniform(2, 3, 50, batch_size=3, capacity_tokens=517),
    "large rows": KVGeometry.uniform(1, 32, 128, batch_size=70, capacity_tokens=3),
}


class Memory:
    """Aligned memory for transfers."""

    def __init__(self, size_bytes: int) -> None:
        self.data = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.data))


def main(kills: int, ssds: list[str]) -> None:
    print(json.dumps({ssd.split(":")[0]: on_ssd(kills, *ssd.split(":")) for ssd in ssds}))


def on_ssd(kills: int, serial: str, lba_bytes: str, bad_read: str, bad_write: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as records:
        storage = StorageConfig(
            "nvme", records, backend="nvme", serial=serial, partition=2, lba_bytes=int(lba_bytes), first_lba=65536
        )
        memory = Memory(8 * MIB)
        return {
            "prefill": {name: prefill(storage, geometry, memory) for name, geometry in GEOMETRIES.items()},
            "bounds": bounds(storage, memory),
            "faults": faults(storage, memory, {"read": int(bad_read), "write": int(bad_write)}),
            "kills": killed(storage, memory, kills),
        }


def prefill(storage: StorageConfig, geometry: KVGeometry, memory: Memory) -> dict[str, Any]:
    """Write every tensor whole, one call each, and read it back."""
    sizes = [(tensor, geometry.tensors[tensor].size_bytes) for tensor in geometry.tensors]
    with target_for(storage, bind(sizes, storage.lba_bytes).size_bytes) as target:
        lba_map = bind(sizes, storage.lba_bytes, target.first_byte // storage.lba_bytes)
        with ring_on(storage, target, lba_map.size_bytes) as ring:
            registered = ring.register(memory.address, len(memory.data), target.chunk_bytes)
            checksums: dict[TensorId, int] = {}
            with tracing() as commands:
                for tensor, extent in lba_map.extents.items():
                    size = extent.n_blocks * storage.lba_bytes
                    memory.data[:size] = random.randbytes(size)
                    checksums[tensor] = zlib.crc32(memory.data[:size])
                    move(ring, "write", memory, lba_map, tensor, target.chunk_bytes)
            for tensor, extent in lba_map.extents.items():
                memory.data[:] = bytes(len(memory.data))
                move(ring, "read", memory, lba_map, tensor, target.chunk_bytes)
                assert zlib.crc32(memory.data[: extent.n_blocks * storage.lba_bytes]) == checksums[tensor]
            still_registered = ring.registered
    return {
        "extents": [(extent.first_lba, extent.n_blocks) for extent in lba_map.extents.values()],
        "chunk_blocks": target.chunk_bytes // storage.lba_bytes,
        "commands": commands,
        "registered": registered and still_registered,
        "deallocated": dataclasses.asdict(target.deallocated) if target.deallocated else None,
    }


def move(ring: Ring, op: Op, memory: Memory, lba_map: LbaMap, tensor: TensorId, chunk_bytes: int) -> None:
    extent = lba_map.extents[tensor]
    offset, size = extent.first_lba * lba_map.lba_bytes, extent.n_blocks * lba_map.lba_bytes
    ring.wait(ring.start(op, memory, memory.address, offset, size, chunk_bytes), 30)


def bounds(storage: StorageConfig, memory: Memory) -> dict[str, Any]:
    """What asks for one block too many, and whether any command of it was sent."""
    said = []
    with target_for(storage, MIB) as target, ring_on(storage, target, MIB) as ring, tracing() as commands:
        for offset in (target.first_byte - storage.lba_bytes, target.first_byte + MIB, target.first_byte + 1):
            said.append(error_of(lambda offset=offset: transfer(ring, "write", memory, offset, storage.lba_bytes)))
    return {"said": said, "commands": commands}


def faults(storage: StorageConfig, memory: Memory, bad: dict[Op, int]) -> dict[str, str | None]:
    """What a transfer over a bad block says, and that its neighbour works."""
    found: dict[str, str | None] = {}
    with target_for(dataclasses.replace(storage, first_lba=0), 500 * MIB) as target:
        for op, lba in bad.items():
            if lba:
                with ring_on(storage, target, 500 * MIB) as ring:
                    found[op] = error_of(
                        lambda ring=ring, op=op, lba=lba: transfer(
                            ring, op, memory, (lba - 8) * storage.lba_bytes, 16384
                        )
                    )
                    transfer(ring, op, memory, (lba + 64) * storage.lba_bytes, 16384)
    return found


def killed(storage: StorageConfig, memory: Memory, kills: int) -> dict[str, Any]:
    """Writers killed at random moments: what the next start finds, and whether a neighbouring block changed."""
    size = 4 * MIB
    with target_for(storage, size) as target:  # an idle run: what lies around its blocks is ours to fill here
        first, node = target.first_byte, target.fd
        guards = [(first - GUARD_BYTES, random.randbytes(GUARD_BYTES)), (first + size, random.randbytes(GUARD_BYTES))]
        for offset, content in guards:
            write_raw(target, storage, memory, offset, content)
        assert node == target.fd
    reclaimed = 0
    for _ in range(kills):
        pid = os.fork()
        if not pid:
            write_for_ever(storage, size)
        wait_for_record(Path(storage.directory))
        time.sleep(random.uniform(0, 0.05))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with target_for(storage, size) as target:
            reclaimed += sum(done.bytes for done in target.reclaimed)
            nonzero = [done for done in target.reclaimed if done.zero_bytes != done.checked_bytes]
            assert not nonzero, nonzero
    with target_for(storage, size) as target:
        intact = [read_raw(target, storage, offset, len(content)) == content for offset, content in guards]
    return {
        "kills": kills,
        "reclaimed_bytes": reclaimed,
        "size_bytes": size,
        "intact": intact,
        "records_left": leftovers.exist(Path(storage.directory)),
    }


def write_for_ever(storage: StorageConfig, size: int) -> None:
    """A run that never ends by itself."""
    try:
        memory = Memory(size)
        memory.data[:] = b"\xa5" * size
        target = NvmeTarget(storage, size)
        ring = Ring(target.fd, str(target), **ring_settings(storage, target, size))
        while True:
            transfer(ring, "write", memory, target.first_byte, size, target.chunk_bytes)
    finally:
        os._exit(1)


def wait_for_record(folder: Path) -> None:
    give_up_at = time.monotonic() + 30
    while not leftovers.exist(folder):
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


def write_raw(target: NvmeTarget, storage: StorageConfig, memory: Memory, offset: int, content: bytes) -> None:
    memory.data[: len(content)] = content
    settings = ring_settings(storage, target, 0) | {"first_byte": offset, "end_byte": offset + len(content)}
    with Ring(target.fd, str(target), **settings) as ring:
        transfer(ring, "write", memory, offset, len(content), target.chunk_bytes)


def read_raw(target: NvmeTarget, storage: StorageConfig, offset: int, size: int) -> bytes:
    """By the synchronous ioctl, which shares nothing with the ring."""
    step, lba = 16384, storage.lba_bytes
    return b"".join(
        nvme_command.read(target.fd, target.namespace_id, (offset + start) // lba, step // lba, lba)
        for start in range(0, size, step)
    )


@contextlib.contextmanager
def target_for(storage: StorageConfig, size_bytes: int) -> Iterator[NvmeTarget]:
    target = NvmeTarget(storage, size_bytes)
    try:
        yield target
    finally:
        target.close()


def ring_settings(storage: StorageConfig, target: NvmeTarget, size_bytes: int) -> dict[str, Any]:
    return {
        "queue_depth": DEPTH,
        "first_byte": target.first_byte,
        "end_byte": target.first_byte + size_bytes,
        "block_bytes": storage.lba_bytes,
        "namespace_id": target.namespace_id,
        "iopoll": storage.iopoll,
    }


def ring_on(storage: StorageConfig, target: NvmeTarget, size_bytes: int) -> Ring:
    return Ring(target.fd, str(target), **ring_settings(storage, target, size_bytes))


def transfer(ring: Ring, op: Op, memory: Memory, offset: int, size: int, chunk_bytes: int = 16384) -> None:
    ring.wait(ring.start(op, memory, memory.address, offset, size, chunk_bytes), 30)


def error_of(action: Callable[[], None]) -> str | None:
    try:
        action()
    except StorageError as error:
        return str(error)
    return None


@contextlib.contextmanager
def tracing() -> Iterator[list[str]]:
    """Lines of nvme_setup_cmd, as the kernel's own trace has them, for commands that are sent inside the block.

    The trace has those of every partition; the file systems beside ours are kept from sending any.
    """
    lines: list[str] = []
    with frozen_file_systems():
        (TRACING / "trace").write_text("")
        EVENT.write_text("1")
        try:
            yield lines
        finally:
            EVENT.write_text("0")
            text = (TRACING / "trace").read_text()
    lines.extend(line.partition("nvme_setup_cmd: ")[2] for line in text.splitlines() if "nvme_setup_cmd: " in line)


@contextlib.contextmanager
def frozen_file_systems() -> Iterator[None]:
    """Those on the NVMe devices present, which send commands of their own: ext4 reads block bitmaps after the mount."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    folders = {device: folder for device, folder, *_ in mounts if device.startswith("/dev/nvme")}
    with contextlib.ExitStack() as stack:
        for folder in (folder for device, folder in folders.items() if Path(device).exists()):
            subprocess.run(["fsfreeze", "--freeze", folder], check=True)
            stack.callback(subprocess.run, ["fsfreeze", "--unfreeze", folder], check=True)
        yield


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
