"""A preallocated file as the direct path's target, and the check of the folder for a run's files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from dualblade.config.storage import StorageConfig
from dualblade.errors import StorageError
from dualblade.linux.direct_io import check_direct, is_direct, no_direct_io, refuse_memory_file_system
from dualblade.linux.page_residency import resident_bytes


def check_folder(storage: StorageConfig, size_bytes: int, *, direct: bool) -> None:
    """Refuse a folder that cannot hold `size_bytes` of a run's files, or that has no direct I/O when they need it.

    This writes nothing: the file that it opens has no name and stays empty. For a folder that does not exist, the
    nearest existing parent is checked. On a file system without nameless files (NFS), direct I/O is not checked.

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
    """One preallocated file without a name: the kernel frees its space even if this process is killed."""

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

    def device_facts(self) -> None:
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
    """Free space for this user; only root may use the blocks that some file systems reserve."""
    state = os.statvfs(folder)
    return (state.f_bavail if os.geteuid() else state.f_bfree) * state.f_frsize
