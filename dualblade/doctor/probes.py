"""Small experiments that find what a process may do on this machine; each leaves the machine as it was."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dualblade.linux import libc
from dualblade.linux.cgroups import CgroupDirectory
from dualblade.linux.page_residency import resident_bytes

# linux/io_uring.h
_IORING_REGISTER_PROBE = 8
_IORING_OP_URING_CMD = 46
_IO_URING_OP_SUPPORTED = 1
_PROBE_OPERATIONS = 256

_LIMIT_BYTES = 64 << 20


class _ProbeOperation(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.c_uint8),
        ("resv", ctypes.c_uint8),
        ("flags", ctypes.c_uint16),
        ("resv2", ctypes.c_uint32),
    ]


class _Probe(ctypes.Structure):
    _fields_ = [
        ("last_op", ctypes.c_uint8),
        ("ops_len", ctypes.c_uint8),
        ("resv", ctypes.c_uint16),
        ("resv2", ctypes.c_uint32 * 3),
        ("ops", _ProbeOperation * _PROBE_OPERATIONS),
    ]


def takes_a_limit(directory: CgroupDirectory) -> bool:
    """Make a cgroup in `directory`, limit it, read the limit back, and remove it."""
    child = Path(directory.path) / f"dualblade-doctor-{os.getpid()}"
    try:
        with _memory_for_children(directory), _folder(child):
            file = child / directory.limit_file
            file.write_text(str(_LIMIT_BYTES))
            return int(file.read_text()) == _LIMIT_BYTES
    except OSError:
        return False


def systemd_delegates() -> bool:
    """Whether systemd gives the user a cgroup v2: run a command that does nothing in a scope with a limit."""
    if shutil.which("systemd-run") is None:
        return False
    scope = ["systemd-run", "--user", "--scope", "--quiet", "-p", "Delegate=yes", "-p", f"MemoryMax={_LIMIT_BYTES}"]
    return subprocess.run([*scope, "true"], capture_output=True, check=False).returncode == 0


def has_passthrough() -> bool:
    """Set up an io_uring and ask it for uring_cmd, the operation of NVMe passthrough.

    Raises:
        OSError: no ring can be set up.
    """
    ring = libc.io_uring_setup(4)
    try:
        probe = _Probe()
        libc.syscall(libc.SYS_IO_URING_REGISTER, ring, _IORING_REGISTER_PROBE, ctypes.byref(probe), _PROBE_OPERATIONS)
        return bool(probe.ops[_IORING_OP_URING_CMD].flags & _IO_URING_OP_SUPPORTED)
    finally:
        os.close(ring)


def left_by_direct_io(folder: Path) -> int:
    """Write and read back a block with O_DIRECT; returns the bytes of it that are in the page cache afterwards.

    Raises:
        OSError: direct I/O is refused.
    """
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".dualblade-doctor-") as file:
        fd = os.open(file.name, os.O_RDWR | os.O_DIRECT)
        try:
            with mmap.mmap(-1, 4096) as block:  # direct I/O wants aligned memory
                os.pwritev(fd, [block], 0)
                os.preadv(fd, [block], 0)
            return resident_bytes(fd)
        finally:
            os.close(fd)


def locks_memory(size_bytes: int) -> bool:
    """Return whether anonymous memory of this size can be locked; release it."""
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    locked = libc.mlock(ctypes.addressof(ctypes.c_char.from_buffer(memory)), size_bytes)
    memory.close()
    return locked


def has_cachestat() -> bool:
    """Return whether the kernel has cachestat: if so, it refuses the bad descriptor and not the call."""
    try:
        libc.syscall(libc.SYS_CACHESTAT, -1, None, None, 0)
    except OSError as error:
        return error.errno == errno.EBADF
    return True


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    path.mkdir()
    try:
        yield
    finally:
        path.rmdir()


@contextmanager
def _memory_for_children(directory: CgroupDirectory) -> Iterator[None]:
    """cgroup v2 hands controllers to children on request only (admin-guide/cgroup-v2.rst, "Enabling and Disabling")."""
    control = Path(directory.path) / "cgroup.subtree_control"
    if directory.version == 1 or "memory" in control.read_text().split():
        yield
        return
    control.write_text("+memory")
    try:
        yield
    finally:
        control.write_text("-memory")
