"""Calls of the C library and the kernel that Python's own modules do not offer."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]

# The same on every architecture but alpha (include/uapi/asm-generic/unistd.h).
SYS_IO_URING_SETUP = 425
SYS_IO_URING_REGISTER = 427
SYS_CACHESTAT = 451

_IO_URING_PARAMS_BYTES = 120  # linux/io_uring.h
_PR_SET_TIMERSLACK = 29  # linux/prctl.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h


def syscall(number: int, *arguments: object) -> int:
    """Make a system call.

    Raises:
        OSError: the kernel refused it.
    """
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        raise _last_error()
    return result


def io_uring_setup(entries: int) -> int:
    """Set up an io_uring and return its descriptor (io_uring_setup(2)).

    Raises:
        OSError: the kernel refused it.
    """
    return syscall(SYS_IO_URING_SETUP, entries, ctypes.create_string_buffer(_IO_URING_PARAMS_BYTES))


def mlock(address: int, size_bytes: int) -> bool:
    """Lock memory; returns whether the kernel did so (mlock(2))."""
    return bool(_libc.mlock(address, size_bytes) == 0)


def mincore(address: int, size_bytes: int, flags: ctypes.Array[ctypes.c_ubyte]) -> None:
    """Set one flag for each page of a mapping that is in memory (mincore(2)).

    Raises:
        OSError: the kernel refused it.
    """
    if _libc.mincore(address, size_bytes, flags):
        raise _last_error()


def set_timer_slack(slack_ns: int) -> None:
    """Set how late the kernel may end the calling thread's sleeps (prctl(2))."""
    _libc.prctl(_PR_SET_TIMERSLACK, slack_ns, 0, 0, 0)


def keep_freed_memory() -> None:
    """Make malloc keep memory that is freed from now on, so that it stays charged to this process (mallopt(3))."""
    _libc.mallopt(_M_MMAP_MAX, 0)
    _libc.mallopt(_M_TRIM_THRESHOLD, -1)


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
