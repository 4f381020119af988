"""What fio reads and writes on each I/O path: a file, a block device, an NVMe character device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dualblade.claim import Claim
from dualblade.errors import StorageError
from dualblade.page_residency import resident_bytes
from dualblade.storage_config import StorageConfig
from dualblade.units import MIB
from experiments import fio, loop_device
from experiments.io_point import IoPath
from experiments.journal import Journal

FILE = "io"
RING = "--ioengine=io_uring"
FILL_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class IoTarget:
    """Bytes of a file or device from `offset_bytes` on that fio may overwrite, and how it gets there.

    `cached` says whether the path goes through the page cache: what is read back must agree. `cache` is the file whose
    pages that would be, `file` itself if None. `what` is for people.
    """

    file: Path
    options: tuple[str, ...]
    cached: bool
    what: str
    offset_bytes: int = 0
    cache: Path | None = None
    most_request_bytes: int | None = None

    def resident_bytes(self, size_bytes: int) -> int:
        """Bytes of it in the page cache now."""
        with _opened(self.cache or self.file) as fd:
            return resident_bytes(fd, size_bytes, self.offset_bytes)

    def forget(self, size_bytes: int) -> None:
        """Write it back and drop it from the page cache.

        Raises:
            StorageError: some of it stays.
        """
        with _opened(self.cache or self.file) as fd:
            os.fsync(fd)
            os.posix_fadvise(fd, self.offset_bytes, size_bytes, os.POSIX_FADV_DONTNEED)
            left_bytes = resident_bytes(fd, size_bytes, self.offset_bytes)
        if left_bytes:
            raise StorageError(f"{left_bytes:,} bytes of {self.what} stay in the page cache; is it in use elsewhere?")

    def takes(self, request_bytes: int) -> bool:
        """Whether one request can be so large."""
        return self.most_request_bytes is None or request_bytes <= self.most_request_bytes


@contextlib.contextmanager
def opened(
    path: IoPath, storage: StorageConfig, size_bytes: int, scratch: Path, journal: Journal
) -> Iterator[IoTarget]:
    """The path's target, every block of it written once, in `scratch` where it is a file of ours.

    Raises:
        StorageError, ConfigurationError: this machine does not have the path, or the blocks named are not ours.
    """
    with _made(path, storage, size_bytes, scratch, journal) as target:
        fill(target, size_bytes)
        yield target


def fill(target: IoTarget, size_bytes: int) -> None:
    """Write it from end to end: what was never written may be answered without touching the medium."""
    request_bytes = min(MIB, target.most_request_bytes or MIB)
    whole = ["--rw=write", f"--bs={request_bytes}", "--iodepth=8", f"--size={size_bytes}", "--fallocate=none"]
    fio.run([*target.options, f"--filename={target.file}", f"--offset={target.offset_bytes}", *whole], FILL_TIMEOUT_S)


@contextlib.contextmanager
def _made(path: IoPath, storage: StorageConfig, size_bytes: int, scratch: Path, journal: Journal) -> Iterator[IoTarget]:
    file = scratch / FILE
    match path:
        case "ext4_buffered":
            yield IoTarget(file, (RING, "--direct=0"), cached=True, what="a file through the page cache")
        case "ext4_direct":
            yield IoTarget(file, (RING, "--direct=1"), cached=False, what="a file, O_DIRECT")
        case _ if storage.backend == "nvme":
            with _claimed(storage, size_bytes) as (claim, blocks):
                yield _on_namespace(path, claim, blocks)
        case "block_direct":
            _reserve(file, size_bytes)
            with loop_device.attached(file, journal) as device:
                what = "a loop device over a file, O_DIRECT"
                yield IoTarget(device, (RING, "--direct=1"), cached=False, what=what)
        case _:
            raise StorageError(f"io.path={path} takes an NVMe device, and storage={storage.name} has none")


def _on_namespace(path: IoPath, claim: Claim, blocks: range) -> IoTarget:
    """The claimed blocks, by the block layer or past it."""
    block_device, first_byte = claim.namespace.block_device, blocks.start * claim.identity.format.lba_bytes
    if path == "block_direct":
        what = "an NVMe namespace as block device, O_DIRECT"
        return IoTarget(block_device, (RING, "--direct=1"), cached=False, what=what, offset_bytes=first_byte)
    return IoTarget(
        claim.namespace.character_device,
        ("--ioengine=io_uring_cmd", "--cmd_type=nvme"),
        cached=False,
        what="an NVMe namespace by native commands",
        offset_bytes=first_byte,
        cache=block_device,
        most_request_bytes=claim.identity.most_chunk_bytes,
    )


@contextlib.contextmanager
def _claimed(storage: StorageConfig, size_bytes: int) -> Iterator[tuple[Claim, range]]:
    """Blocks of the namespace that the configuration grants, ours alone, and deallocated at the end.

    Should this process be killed, the record it keeps has the next claim deallocate them.
    """
    claim = Claim(storage)
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
