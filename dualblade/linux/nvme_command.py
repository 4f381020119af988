"""Single NVMe commands by the kernel's passthrough ioctl, to set a namespace up and to clean it up.

Transfers go through the ring (uring.py); these few are synchronous and need neither a ring nor compiled code.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Sequence

from dualblade.errors import StorageError
from dualblade.linux import nvme_status

# linux/nvme_ioctl.h: _IOWR('N', 0x41 and 0x43, struct nvme_passthru_cmd)
_ADMIN = 0xC0484E41
_IO = 0xC0484E43
_TIMEOUT_MS = 30_000

_IDENTIFY = 0x06
_READ = 0x02
_DATASET_MANAGEMENT = 0x09
_IDENTIFY_BYTES = 4096
_DEALLOCATE = 0x4  # attribute AD of Dataset Management

IDENTIFY_NAMESPACE = 0
IDENTIFY_CONTROLLER = 1
MAX_BLOCKS_PER_RANGE = 0xFFFF_FFFF


class _Command(ctypes.Structure):
    _fields_ = [
        ("opcode", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("rsvd1", ctypes.c_uint16),
        ("nsid", ctypes.c_uint32),
        ("cdw2", ctypes.c_uint32),
        ("cdw3", ctypes.c_uint32),
        ("metadata", ctypes.c_uint64),
        ("addr", ctypes.c_uint64),
        ("metadata_len", ctypes.c_uint32),
        ("data_len", ctypes.c_uint32),
        ("cdw10", ctypes.c_uint32),
        ("cdw11", ctypes.c_uint32),
        ("cdw12", ctypes.c_uint32),
        ("cdw13", ctypes.c_uint32),
        ("cdw14", ctypes.c_uint32),
        ("cdw15", ctypes.c_uint32),
        ("timeout_ms", ctypes.c_uint32),
        ("result", ctypes.c_uint32),
    ]


class _Range(ctypes.Structure):
    """Dataset Management, figure "Range Definition"."""

    _fields_ = [("attributes", ctypes.c_uint32), ("n_blocks", ctypes.c_uint32), ("first_lba", ctypes.c_uint64)]


def identify(fd: int, what: int, nsid: int = 0) -> bytes:
    """The 4096 bytes of Identify; `what` is IDENTIFY_CONTROLLER, or IDENTIFY_NAMESPACE with the namespace's number."""
    with mmap.mmap(-1, _IDENTIFY_BYTES) as data:
        _send(fd, _ADMIN, "identify", data, opcode=_IDENTIFY, nsid=nsid, cdw10=what)
        return data[:]


def read(fd: int, nsid: int, lba: int, n_blocks: int, lba_bytes: int) -> bytes:
    """Read `n_blocks` blocks; no more than one command may move."""
    with mmap.mmap(-1, n_blocks * lba_bytes) as data:
        doing = f"read of {n_blocks} blocks at LBA {lba:,}"
        words = {"cdw10": lba & 0xFFFF_FFFF, "cdw11": lba >> 32, "cdw12": n_blocks - 1}
        _send(fd, _IO, doing, data, opcode=_READ, nsid=nsid, **words)
        return data[:]


def deallocate(fd: int, nsid: int, ranges: Sequence[range]) -> None:
    """Deallocate the blocks in `ranges` (at most 256 ranges)."""
    table = (_Range * len(ranges))(*(_Range(0, len(blocks), blocks.start) for blocks in ranges))
    with mmap.mmap(-1, ctypes.sizeof(table)) as data:
        data.write(bytes(table))
        doing = f"deallocate of {sum(map(len, ranges)):,} blocks at LBA {ranges[0].start:,}"
        words = {"cdw10": len(ranges) - 1, "cdw11": _DEALLOCATE}
        _send(fd, _IO, doing, data, opcode=_DATASET_MANAGEMENT, nsid=nsid, **words)


def _send(fd: int, request: int, doing: str, data: mmap.mmap, **fields: int) -> None:
    """Send a command and wait for it.

    Raises:
        StorageError: the kernel refused it, or the device answered with an error.
    """
    buffer = (ctypes.c_char * len(data)).from_buffer(data)
    command = _Command(addr=ctypes.addressof(buffer), data_len=len(data), timeout_ms=_TIMEOUT_MS, **fields)
    try:
        status = fcntl.ioctl(fd, request, command)
    except OSError as error:
        raise StorageError(f"NVMe {doing} on {_node(fd)} failed: {error.strerror}{_cure(error)}") from None
    finally:
        del buffer  # a mapping that is still pointed to cannot be closed
    if status:
        raise StorageError(f"NVMe {doing} on {_node(fd)} failed: {nvme_status.describe(status)}")


def _cure(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "; NVMe passthrough needs root (CAP_SYS_ADMIN), or Linux 6.2 and write access to the device"
    if error.errno in (errno.ENODEV, errno.ENXIO):
        return "; the device is gone"
    return "; see the kernel log"


def _node(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")
