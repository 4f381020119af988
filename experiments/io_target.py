"""What fio reads and writes on each I/O path: a file, a block device, an NVMe character device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dualblade.config import MIB
from dualblade.errors import StorageError
from dualblade.page_residency import resident_bytes
from experiments import fio, loop_device
from experiments.io_point import IoPoint
from experiments.journal import Journal

FILE = "io"
FILL_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class IoTarget:
    """A file or device that fio may overwrite from its start, and how it gets there.

    `cached` says whether the path goes through the page cache: what is read back must agree. `what` is for people.
    """

    file: Path
    options: tuple[str, ...]
    cached: bool
    what: str

    def resident_bytes(self, size_bytes: int) -> int:
        """Bytes of it in the page cache now."""
        with _opened(self.file) as fd:
            return resident_bytes(fd, size_bytes)

    def forget(self, size_bytes: int) -> None:
        """Write it back and drop it from the page cache.

        Raises:
            StorageError: some of it stays.
        """
        with _opened(self.file) as fd:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, size_bytes, os.POSIX_FADV_DONTNEED)
            left_bytes = resident_bytes(fd, size_bytes)
        if left_bytes:
            raise StorageError(f"{left_bytes:,} bytes of {self.what} stay in the page cache; is it in use elsewhere?")


@contextlib.contextmanager
def opened(point: IoPoint, scratch: Path, journal: Journal) -> Iterator[IoTarget]:
    """The path's target, every block of it written once, in `scratch` where it is a file of ours.

    Raises:
        StorageError: this machine does not have the path.
    """
    with _made(point, scratch, journal) as target:
        fill(target, point.io.size_bytes)
        yield target


def fill(target: IoTarget, size_bytes: int) -> None:
    """Write it from end to end: what was never written may be answered without touching the medium."""
    whole = [f"--filename={target.file}", "--rw=write", f"--bs={MIB}", "--iodepth=8", f"--size={size_bytes}"]
    fio.run([*target.options, *whole, "--fallocate=none", "--end_fsync=1"], FILL_TIMEOUT_S)


@contextlib.contextmanager
def _made(point: IoPoint, scratch: Path, journal: Journal) -> Iterator[IoTarget]:
    path, file, ring = point.io.path, scratch / FILE, "--ioengine=io_uring"
    match path:
        case "ext4_buffered":
            yield IoTarget(file, (ring, "--direct=0"), cached=True, what="a file through the page cache")
        case "ext4_direct":
            yield IoTarget(file, (ring, "--direct=1"), cached=False, what="a file, O_DIRECT")
        case "block_direct":
            _reserve(file, point.io.size_bytes)
            with loop_device.attached(file, journal) as device:
                what = "a loop device over a file, O_DIRECT"
                yield IoTarget(device, (ring, "--direct=1"), cached=False, what=what)
        case _:
            raise StorageError(f"io.path={path} takes an NVMe device, and storage={point.storage.name} has none")


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
