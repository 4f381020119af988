"""Direct I/O: whether a file system or a descriptor has it, read back from the kernel."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from dualblade.errors import ConfigurationError, StorageError
from dualblade.linux.mounts import MEMORY_FILE_SYSTEMS, file_system_of
from dualblade.native._compiled import ffi, lib


def refuse_memory_file_system(directory: Path) -> None:
    """Raise for a folder that lies in memory, where a direct file would be page cache after all."""
    if file_system_of(directory) in MEMORY_FILE_SYSTEMS:
        raise no_direct_io(directory)


def no_direct_io(directory: Path) -> StorageError:
    """Return the error for a folder whose file system has no direct I/O."""
    return StorageError(
        f"storage.directory={directory} lies on {file_system_of(directory)}, which has no direct I/O; "
        "choose a folder on ext4, xfs or btrfs"
    )


def is_direct(fd: int) -> bool:
    """Return whether O_DIRECT is in force on the descriptor now."""
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)


def check_direct(fd: int, name: str, lba_bytes: int) -> None:
    """Read back that I/O on `fd` bypasses the page cache, and that the LBA size suits it."""
    if not is_direct(fd):
        raise StorageError(f"{name} was opened with O_DIRECT but the flag is not in force; choose another storage")
    alignment_bytes = dio_alignment_bytes(fd)
    if alignment_bytes == 0:
        raise StorageError(f"{name} has no direct I/O (statx); choose a folder on ext4, xfs or btrfs")
    if lba_bytes % (alignment_bytes or 512):
        raise ConfigurationError(
            f"storage.lba_bytes={lba_bytes} is no multiple of the {alignment_bytes}-byte alignment that direct I/O on "
            f"{name} needs; use {max(alignment_bytes or 512, 4096)}"
        )


def dio_alignment_bytes(fd: int) -> int | None:
    """Offset alignment of direct I/O on `fd`, 0 where the file system has none, None where the kernel cannot tell."""
    memory_bytes, offset_bytes = ffi.new("uint32_t *"), ffi.new("uint32_t *")
    code = lib.db_dio_alignment(fd, memory_bytes, offset_bytes)
    if code == -errno.EOPNOTSUPP:
        return 0
    return int(offset_bytes[0]) if code == 0 else None
