"""Targets of fio for each I/O path: a file, a block device, an NVMe character device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError, StorageError
from dualblade.linux.block_device import BlockDevice, backing_device
from dualblade.linux.mounts import mount_of, read_mounts
from dualblade.linux.page_residency import resident_bytes
from dualblade.targets.block import BlockTarget
from dualblade.targets.claim import BlockClaim
from dualblade.units import KIB, MIB
from experiments.machine import loop_device
from experiments.machine.journal import Journal
from experiments.points.io_point import IoConfig, IoPath
from experiments.processes import fio

FILE = "io"
RING = "--ioengine=io_uring"
FILL_TIMEOUT_S = 600.0
Kind = Literal["file", "block", "loop", "nvme"]


@dataclass(frozen=True)
class IoTarget:
    """Bytes of a file or device from `offset_bytes` on that fio may overwrite, and how it gets there.

    `cached` says whether the path goes through the page cache: what is read back must agree. `cache` is the file whose
    pages that would be, `file` itself if None. `what` is for people. A request is of whole blocks of `block_bytes`.
    """

    file: Path
    options: tuple[str, ...]
    cached: bool
    what: str
    offset_bytes: int = 0
    cache: Path | None = None
    block_bytes: int = 1
    most_request_bytes: int | None = None

    @property
    def job(self) -> list[str]:
        """fio's options that say how its requests go where; a colon would end the name of a file."""
        name = str(self.file).replace(":", "\\:")
        return [*self.options, f"--filename={name}", f"--offset={self.offset_bytes}"]

    def resident_bytes(self, size_bytes: int) -> int:
        """Return the target's bytes in the page cache now."""
        with _opened(self.cache or self.file) as fd:
            return resident_bytes(fd, size_bytes, self.offset_bytes)

    def forget(self, size_bytes: int) -> None:
        """Write the target back and drop it from the page cache.

        Raises:
            StorageError: some of it stays.
        """
        with _opened(self.cache or self.file) as fd:
            os.fsync(fd)
            os.posix_fadvise(fd, self.offset_bytes, size_bytes, os.POSIX_FADV_DONTNEED)
            left_bytes = resident_bytes(fd, size_bytes, self.offset_bytes)
        if left_bytes:
            raise StorageError(f"{left_bytes:,} bytes of {self.what} stay in the page cache; is it in use elsewhere?")

    def cells(self, io: IoConfig) -> list[tuple[int, int]]:
        """Return the cells of the grid that the target supports: request size in bytes, and queue depth.

        Raises:
            ConfigurationError: a size that is not of whole blocks, or none that is small enough.
        """
        odd = [kib for kib in io.block_kib if kib * KIB % self.block_bytes]
        if odd:
            raise ConfigurationError(
                f"io.block_kib={odd} is not of whole blocks of {self.what}, which are {self.block_bytes:,} bytes; take "
                f"multiples of {self.block_bytes // KIB}"
            )
        most_bytes = self.most_request_bytes or max(io.block_kib) * KIB
        possible = [(size, depth) for size, depth in io.cells if size <= most_bytes]
        if not possible:
            raise ConfigurationError(
                f"io.block_kib={list(io.block_kib)} are all more than one request of {self.what} can have; take "
                f"{most_bytes // KIB} or less"
            )
        return possible


@contextlib.contextmanager
def opened(
    path: IoPath, storage: StorageConfig, size_bytes: int, scratch: Path, journal: Journal
) -> Iterator[IoTarget]:
    """The path's target, in `scratch` where it is a file of ours: `fill` it before it is measured.

    Raises:
        StorageError, ConfigurationError: this machine does not have the path, or the blocks named are not ours.
    """
    file = scratch / FILE
    match kind(path, storage):
        case "file":
            yield on_file(path, file)
        case "nvme":
            with _claimed(storage, size_bytes) as (claim, blocks):
                yield on_namespace(path, claim, blocks)
        case "block":
            with contextlib.closing(BlockTarget(storage, size_bytes)) as device:
                yield on_device(device)
        case "loop":
            _reserve(file, size_bytes)
            with loop_device.attached(file, journal) as loop:
                yield on_loop(loop)


def kind(path: IoPath, storage: StorageConfig) -> Kind:
    """What the path leads to: what the storage names, or else a loop device of ours for the block layer.

    Raises:
        StorageError: the storage does not have the path.
    """
    if path in ("ext4_buffered", "ext4_direct"):
        return "file"
    if storage.backend == "nvme":
        return "nvme"
    if path == "block_direct":
        return "block" if storage.backend == "block" else "loop"
    raise StorageError(f"io.path={path} takes an NVMe device, and storage={storage.name} has none")


def fill(target: IoTarget, size_bytes: int) -> None:
    """Write the target from end to end: blocks that were never written may be answered without a read of the medium."""
    request_bytes = min(MIB, target.most_request_bytes or MIB)
    whole = ["--rw=write", f"--bs={request_bytes}", "--iodepth=8", f"--size={size_bytes}", "--fallocate=none"]
    fio.run([*target.job, *whole], FILL_TIMEOUT_S)


def on_file(path: IoPath, file: Path) -> IoTarget:
    """Return the target on a file, which need not exist yet, through the page cache or by direct I/O."""
    if path == "ext4_buffered":
        return IoTarget(file, (RING, "--direct=0"), cached=True, what="a file through the page cache")
    device = backing_device(mount_of(file, read_mounts()))
    block_bytes = device.block_bytes if device else 1
    return IoTarget(file, (RING, "--direct=1"), cached=False, what="a file, O_DIRECT", block_bytes=block_bytes)


def on_loop(loop: Path) -> IoTarget:
    """Yield the target on a loop device of ours."""
    what = "a loop device over a file, O_DIRECT"
    return IoTarget(loop, (RING, "--direct=1"), cached=False, what=what, block_bytes=loop_device.SECTOR_BYTES)


def on_device(device: BlockTarget) -> IoTarget:
    """Yield the target on the claimed bytes of the configured block device."""
    return IoTarget(
        Path(str(device)),
        (RING, "--direct=1"),
        cached=False,
        what="a block device, O_DIRECT",
        offset_bytes=device.first_byte,
        block_bytes=BlockDevice.of_node(Path(str(device))).block_bytes,
    )


def on_namespace(path: IoPath, claim: BlockClaim, blocks: range) -> IoTarget:
    """Yield the target on the claimed blocks of a namespace, through the block layer or by native commands."""
    block_device, block_bytes = claim.namespace.block_device, claim.identity.format.lba_bytes
    if path == "block_direct":
        return IoTarget(
            block_device,
            (RING, "--direct=1"),
            cached=False,
            what="an NVMe namespace as block device, O_DIRECT",
            offset_bytes=blocks.start * block_bytes,
            block_bytes=block_bytes,
        )
    return IoTarget(
        claim.namespace.character_device,
        ("--ioengine=io_uring_cmd", "--cmd_type=nvme"),
        cached=False,
        what="an NVMe namespace by native commands",
        offset_bytes=blocks.start * block_bytes,
        cache=block_device,
        block_bytes=block_bytes,
        most_request_bytes=claim.identity.most_chunk_bytes,
    )


@contextlib.contextmanager
def _claimed(storage: StorageConfig, size_bytes: int) -> Iterator[tuple[BlockClaim, range]]:
    """Blocks of the namespace that the configuration grants, ours alone, and deallocated at the end.

    Should this process be killed, the record it keeps has the next claim deallocate them.
    """
    claim = BlockClaim(storage)
    try:
        claim.reclaim()
        blocks = claim.first_blocks(size_bytes)
        record = claim.remember(blocks)
        yield claim, blocks
        claim.deallocate(blocks)
        record.remove()
    finally:
        claim.close()


def _reserve(file: Path, size_bytes: int) -> None:
    with open(file, "wb") as new:
        os.posix_fallocate(new.fileno(), 0, size_bytes)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[int]:
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
