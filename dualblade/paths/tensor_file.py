"""One tensor's file: bytes go to and from its pages in the page cache, which the kernel writes back when it likes.

A page that could not be written back leaves the cache like any other page; a later read of it gives zeros. The kernel
reports the failure once, and only on request. So every read asks before its bytes are used.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch

from dualblade.errors import StorageError
from dualblade.geometry import TensorId
from dualblade.linux.page_residency import resident_bytes
from dualblade.native._compiled import lib
from dualblade.paths.fault_guard import FaultGuard

_EVICT_TRIES = 3
# Answers of a kernel that does not report losses (gVisor), or of a sandbox that forbids the question.
_NO_ANSWER = {errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL, errno.ESPIPE}


class TensorFile:
    """A file of `size_bytes` in `directory`, with all of its space reserved, used by `io`.

    It has no name, so the kernel removes it when the process ends in any way.
    """

    def __init__(self, directory: Path, tensor: TensorId, size_bytes: int, io: Literal["mmap", "rw"]) -> None:
        self._name = f"the file of {tensor} in storage.directory={directory}"
        self._copy: Callable[[int, int, torch.Tensor, bool], None] = _copy_mapped if io == "mmap" else _copy_rw
        self.size_bytes = size_bytes
        self._lost = 0  # errno of a failed write-back
        self._asking = threading.Lock()  # the kernel reports once: keep its answer before another thread asks
        self.fd = _create(directory, tensor, size_bytes)
        self.reports_losses = -lib.db_write_back_error(self.fd) not in _NO_ANSWER

    def write(self, offset_bytes: int, staged: torch.Tensor) -> None:
        """Copy bytes into the file's pages."""
        try:
            self._copy(self.fd, offset_bytes, staged, True)
        except OSError as error:
            raise self._failure("write", error) from None

    def read(self, offset_bytes: int, staged: torch.Tensor) -> None:
        """Copy bytes from the file's pages; the kernel reads pages that it no longer holds."""
        try:
            self._copy(self.fd, offset_bytes, staged, False)
        except OSError as error:
            raise self._failure("read", error) from None

    def evict(self, *, dirty: bool) -> int:
        """Write the pages back and drop them; return the bytes still cached, since dirty or mapped pages stay."""
        left_bytes = 0
        for _ in range(_EVICT_TRIES):
            if dirty:
                self._write_back()
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            left_bytes = resident_bytes(self.fd)
            if left_bytes == 0:
                break
        return left_bytes

    def check(self) -> None:
        """Raise if a page could not be written back since the file was made or last renewed.

        Raises:
            StorageError: tokens are lost.
        """
        with self._asking:
            if self.reports_losses:
                self._lost = -lib.db_write_back_error(self.fd) or self._lost
        if self._lost:
            raise StorageError(
                f"the kernel could not write back {self._name} ({os.strerror(self._lost)}), so tokens in it are lost; "
                "see the kernel log, and free some space or choose another folder"
            )

    def renew(self) -> None:
        """Forget earlier losses: every row will be written again before it is read."""
        with self._asking:
            lib.db_write_back_error(self.fd)
            self._lost = 0

    def close(self) -> None:
        """Close the file, which frees its pages and its space."""
        os.close(self.fd)

    def _write_back(self) -> None:
        with self._asking:
            try:
                os.fdatasync(self.fd)
            except OSError as error:
                self._lost = error.errno or errno.EIO

    def _failure(self, op: str, error: OSError) -> StorageError:
        return StorageError(f"cannot {op} {self._name}: {error.strerror}; see the kernel log, or choose another folder")


def _create(directory: Path, tensor: TensorId, size_bytes: int) -> int:
    """Create the file and reserve its space; a write-back without space would fail too late."""
    path = directory / f".{tensor.kind}{tensor.layer}-{os.getpid()}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"cannot create a file in storage.directory={directory}: {error.strerror}") from None
    path.unlink()
    try:
        os.posix_fallocate(fd, 0, size_bytes)
    except OSError as error:
        os.close(fd)
        free = os.statvfs(directory)
        raise StorageError(
            f"cannot reserve {size_bytes:,} bytes for {tensor} in storage.directory={directory}: {error.strerror} "
            f"({free.f_bavail * free.f_frsize:,} bytes free); free some space, choose another folder or a larger scale"
        ) from None
    return fd


def _copy_mapped(fd: int, offset_bytes: int, staged: torch.Tensor, write: bool) -> None:
    """Copy between memory and a shared mapping of the file, with its page faults."""
    size_bytes = offset_bytes + staged.numel()
    with _map(fd, size_bytes) as mapping:
        pages = torch.frombuffer(mapping, dtype=torch.uint8, count=staged.numel(), offset=offset_bytes)
        with FaultGuard(pages.data_ptr() - offset_bytes, size_bytes) as guard:
            if write:
                pages.copy_(staged)
            else:
                staged.copy_(pages)
        del pages  # the mapping cannot be closed while a tensor views it
    if guard.failed_byte is not None:
        raise _no_page(fd, guard.failed_byte)


def _copy_rw(fd: int, offset_bytes: int, staged: torch.Tensor, write: bool) -> None:
    """Copy by read and write calls, repeated until every byte has moved."""
    view = memoryview(staged.numpy().data)
    while view:
        moved = os.pwrite(fd, view, offset_bytes) if write else os.preadv(fd, [view], offset_bytes)
        if moved == 0:
            raise _cut_short(offset_bytes)
        offset_bytes += moved
        view = view[moved:]


def _map(fd: int, size_bytes: int) -> mmap.mmap:
    try:
        return mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    except ValueError:  # Python itself compares with the file's size
        raise _cut_short(os.fstat(fd).st_size) from None


def _no_page(fd: int, byte: int) -> OSError:
    """Find out by a read why a mapping had no page for a byte; the signal does not say why."""
    try:
        there = os.pread(fd, 1, byte)
    except OSError as error:
        return error
    return OSError(errno.EIO, f"the kernel had no page for byte {byte:,}") if there else _cut_short(byte)


def _cut_short(byte: int) -> OSError:
    return OSError(errno.ENODATA, f"it ends at byte {byte:,}: is another program truncating it?")
