"""Targets of the direct path: what Group 2's LBAs lie on: a preallocated file, a block device, or an NVMe namespace.

One place opens them, and the mode in force is read back: a flag that was asked for proves nothing.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Protocol

from dualblade.config.storage import StorageConfig
from dualblade.errors import StorageError
from dualblade.linux.direct_io import check_direct, is_direct, no_direct_io, refuse_memory_file_system
from dualblade.linux.page_residency import resident_bytes
from dualblade.targets.block import BlockTarget
from dualblade.targets.deallocation import Deallocation
from dualblade.targets.nvme import NvmeTarget


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


def check_folder(storage: StorageConfig, size_bytes: int, *, direct: bool) -> None:
    """Refuse a folder that cannot hold `size_bytes` of a run's files, or has no direct I/O if they need it.

    Nothing is written: what is opened gets no name and no byte. A folder that is not there yet is judged by the one
    that it would be made in, and direct I/O of a file system without nameless files (NFS) by nobody but a run.

    Raises:
        StorageError, ConfigurationError: a run could not keep its files there.
    """
    directory = Path(storage.directory)
    refuse_memory_file_system(directory)
    folder = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC | (os.O_DIRECT if direct else 0), 0o600)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise _cannot_create(directory, error) from None
    else:
        with open(fd, "rb"):
            if direct:
                check_direct(fd, f"a file in {directory}", storage.lba_bytes)
    if size_bytes > _free_bytes(folder):
        raise _cannot_reserve(size_bytes, directory, folder, os.strerror(errno.ENOSPC))


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
        raise _cannot_create(directory, error) from None
    path.unlink()
    return fd


def _cannot_create(directory: Path, error: OSError) -> StorageError:
    if error.errno == errno.EINVAL:
        return no_direct_io(directory)
    return StorageError(f"cannot create a file in storage.directory={directory}: {error.strerror}")


def _reserve(fd: int, directory: Path, size_bytes: int) -> None:
    try:
        os.posix_fallocate(fd, 0, max(size_bytes, 1))
    except OSError as error:
        raise _cannot_reserve(size_bytes, directory, directory, str(error.strerror)) from None


def _cannot_reserve(size_bytes: int, directory: Path, folder: Path, reason: str) -> StorageError:
    return StorageError(
        f"cannot reserve {size_bytes:,} bytes in storage.directory={directory}: {reason} "
        f"({_free_bytes(folder):,} bytes free); free some space, choose another folder or a larger scale"
    )


def _free_bytes(folder: Path) -> int:
    """For this user: the blocks that some file systems reserve are root's."""
    state = os.statvfs(folder)
    return (state.f_bavail if os.geteuid() else state.f_bfree) * state.f_frsize
