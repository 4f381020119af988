"""How much of a file lies in the page cache, asked of the kernel: cachestat(2) (Linux 6.5), else mincore(2)."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

from dualblade.linux import libc


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _Stat(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64) for name in ("n_cache", "n_dirty", "n_writeback", "n_evicted", "n_recently_evicted")
    ]


def resident_bytes(fd: int, size_bytes: int | None = None, first_byte: int = 0) -> int:
    """Bytes of an open file from `first_byte` on, `size_bytes` of them (None: all there are), in the page cache now.

    Whole pages count.
    """
    if size_bytes is None:
        size_bytes = os.fstat(fd).st_size - first_byte
    if size_bytes == 0:
        return 0
    stat = _Stat()
    try:
        libc.syscall(libc.SYS_CACHESTAT, fd, ctypes.byref(_Range(first_byte, size_bytes)), ctypes.byref(stat), 0)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            raise
        return mincore_bytes(fd, size_bytes, first_byte)
    return int(stat.n_cache) * mmap.PAGESIZE


def mincore_bytes(fd: int, size_bytes: int, first_byte: int = 0) -> int:
    """Return the resident bytes by mincore(2) on a mapping, which reads nothing; `fd` must be open for writing."""
    into_page = first_byte % mmap.PAGESIZE
    size_bytes += into_page
    n_pages = -(-size_bytes // mmap.PAGESIZE)
    resident = (ctypes.c_ubyte * n_pages)()
    with mmap.mmap(fd, size_bytes, offset=first_byte - into_page) as mapping:
        start = ctypes.c_char.from_buffer(mapping)
        try:
            libc.mincore(ctypes.addressof(start), size_bytes, resident)
        finally:
            del start  # a mapping that is still pointed to cannot be closed
    return sum(flag & 1 for flag in resident) * mmap.PAGESIZE
