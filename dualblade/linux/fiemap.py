"""Places of a tensor's bytes on the device: of a file by FIEMAP, of a device or namespace by its own offset.

The tensors' files have no names, so only the process that holds them can ask, while they are open. Traces name a
tensor by these bytes.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dualblade.linux.block_device import SECTOR_BYTES

# linux/fs.h and linux/fiemap.h
_FS_IOC_FIEMAP = 0xC020660B
_HEADER = struct.Struct("=QQIIII")
_EXTENT = struct.Struct("=QQQQQIIII")
_LAST, _ENCODED, _UNKNOWN = 0x1, 0x8, 0x2
_EXTENTS_PER_CALL = 64


class Piece(NamedTuple):
    """A run of a tensor's bytes that is also a run of the device's bytes."""

    tensor_offset_bytes: int
    device_offset_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class Placement:
    """`device` is the whole disk by its name in sysfs; None, without pieces, where the kernel does not tell."""

    device: str | None
    pieces: tuple[Piece, ...]


NOWHERE = Placement(None, ())


def locate(fd: int, first_byte: int, size_bytes: int) -> Placement:
    """Where bytes [first_byte, first_byte + size_bytes) of an open file, block device or NVMe namespace lie."""
    mode = os.fstat(fd)
    if stat.S_ISREG(mode.st_mode):
        disk = _disk("block", mode.st_dev)
        extents = _fiemap(fd, first_byte, size_bytes)
    elif stat.S_ISBLK(mode.st_mode):
        disk, extents = _disk("block", mode.st_rdev), [(first_byte, first_byte, size_bytes)]
    else:
        disk, extents = _disk("char", mode.st_rdev), [(first_byte, first_byte, size_bytes)]
    if disk is None:
        return NOWHERE
    name, start_byte = disk
    pieces = (_cut(extent, start_byte, first_byte, first_byte + size_bytes) for extent in extents)
    return Placement(name, tuple(piece for piece in pieces if piece.size_bytes > 0))


def _cut(extent: tuple[int, int, int], start_byte: int, first_byte: int, end_byte: int) -> Piece:
    """The part of an extent (logical, physical, length) that belongs to the bytes asked for."""
    logical, physical, length = extent
    begin, end = max(logical, first_byte), min(logical + length, end_byte)
    return Piece(begin - first_byte, start_byte + physical + begin - logical, end - begin)


def _disk(kind: str, device: int) -> tuple[str, int] | None:
    """Name of the whole disk, and where on it the device begins: a partition does not begin at 0."""
    sysfs = Path(f"/sys/dev/{kind}/{os.major(device)}:{os.minor(device)}")
    if not sysfs.exists():  # btrfs and its like have a number of their own
        return None
    sysfs = sysfs.resolve()
    if (sysfs / "partition").exists():
        return sysfs.parent.name, int((sysfs / "start").read_text()) * SECTOR_BYTES
    if kind == "char":  # ngXnY is the namespace whose disk is nvmeXnY
        return sysfs.name.replace("ng", "nvme", 1), 0
    return sysfs.name, 0


def _fiemap(fd: int, first_byte: int, size_bytes: int) -> list[tuple[int, int, int]]:
    """Extents as (logical, physical, length), those with a place on the device only; none if the file system cannot."""
    extents: list[tuple[int, int, int]] = []
    position, end_byte = first_byte, first_byte + size_bytes
    while position < end_byte:
        buffer = bytearray(_HEADER.size + _EXTENTS_PER_CALL * _EXTENT.size)
        _HEADER.pack_into(buffer, 0, position, end_byte - position, 0, 0, _EXTENTS_PER_CALL, 0)
        try:
            fcntl.ioctl(fd, _FS_IOC_FIEMAP, buffer)
        except OSError:
            return []
        mapped = _HEADER.unpack_from(buffer)[3]
        found = [_EXTENT.unpack_from(buffer, _HEADER.size + i * _EXTENT.size) for i in range(mapped)]
        extents += [entry[:3] for entry in found if not entry[5] & (_UNKNOWN | _ENCODED)]
        if not found or found[-1][5] & _LAST:
            break
        position = found[-1][0] + found[-1][2]
    return extents
