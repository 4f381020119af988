"""Targets of the direct path: what Group 2's LBAs lie on: a preallocated file, a block device, or an NVMe namespace.

One place opens them, and the mode in force is read back: a flag that was asked for proves nothing.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Protocol

from dualblade.block_target import BlockTarget
from dualblade.deallocation import Deallocation
from dualblade.direct_io import check_direct, is_direct, no_direct_io, refuse_memory_file_system
from dualblade.errors import StorageError
from dualblade.nvme_target import NvmeTarget
from dualblade.page_residency import resident_bytes
from dualblade.storage_config import StorageConfig


class Target(Protocol):
    """A file descriptor for direct I/O, and the bytes of it that this run owns, from `first_byte` on.

    `namespace_id` is 0, or the NVMe namespace that the descriptor takes native commands for.
    """

    backend: str

    @property
    def deallocated(self) -> Deallocation | None:
        """Once closed: what was given back to a device, which a file need not be told."""
        ...

    @property
    def fd(self) -> int: ...

    @property
    def first_byte(self) -> int: ...

    @property
    def chunk_bytes(self) -> int:
        """What one command moves at most: as configured, or less."""
        ...

    @property
    def namespace_id(self) -> int: ...

    def __str__(self) -> str: ...

    def direct(self) -> bool:
        """Whether what is sent to the descriptor now goes around the page cache."""
        ...

    def resident_bytes(self) -> int:
        """Bytes of the target in the page cache: 0 as long as every transfer was direct."""
        ...

    def describe(self) -> dict[str, object] | None:
        """The device's identity and the blocks in use, where results do not know them otherwise."""
        ...

    def close(self, *, in_doubt: bool = False) -> None:
        """Give the space back to the storage and close; safe to call twice.

        `in_doubt`: commands that were given up may still write.
        """
        ...


def open_target(storage: StorageConfig, size_bytes: int) -> Target:
    """Open the configured backend and reserve `size_bytes` on it, from `storage.first_lba` on.

    Raises:
        StorageError: no direct I/O there, no space, or a device that is not ours to write.
    """
    if storage.backend == "nvme":
        return NvmeTarget(storage, size_bytes)
    if storage.backend == "block":
        return BlockTarget(storage, size_bytes)
    return FileTarget(storage, size_bytes)


class FileTarget:
    """One preallocated file without a name: the kernel takes its space back even if this process is killed."""

    backend = "file"
    namespace_id = 0
    deallocated = None

    def __init__(self, storage: StorageConfig, size_bytes: int) -> None:
        directory = Path(storage.directory)
        self._name = f"the direct file in {directory}"
        self.first_byte = storage.first_lba * storage.lba_bytes
        self.chunk_bytes = storage.chunk_bytes
        refuse_memory_file_system(directory)
        self.fd = _open_nameless(directory)
        try:
            check_direct(self.fd, self._name, storage.lba_bytes)
            _reserve(self.fd, directory, self.first_byte + size_bytes)
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return self._name

    def direct(self) -> bool:
        return is_direct(self.fd)

    def resident_bytes(self) -> int:
        return resident_bytes(self.fd)

    def describe(self) -> None:
        return None

    def close(self, *, in_doubt: bool = False) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _open_nameless(directory: Path) -> int:
    """Create a file for direct I/O and remove its name at once."""
    path = directory / f".direct-{os.getpid()}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno == errno.EINVAL:
            raise no_direct_io(directory) from None
        raise StorageError(f"cannot create a file in storage.directory={directory}: {error.strerror}") from None
    path.unlink()
    return fd


def _reserve(fd: int, directory: Path, size_bytes: int) -> None:
    try:
        os.posix_fallocate(fd, 0, max(size_bytes, 1))
    except OSError as error:
        free = os.statvfs(directory)
        raise StorageError(
            f"cannot reserve {size_bytes:,} bytes in storage.directory={directory}: {error.strerror} "
            f"({free.f_bavail * free.f_frsize:,} bytes free); free some space, choose another folder or a larger scale"
        ) from None
