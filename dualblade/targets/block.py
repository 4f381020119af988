"""A block device as the direct path's target: named by its serial, and with nothing on it."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError, StorageError
from dualblade.linux import ownership
from dualblade.linux.block_device import BlockDevice, device_number
from dualblade.linux.direct_io import check_direct, is_direct
from dualblade.linux.page_residency import resident_bytes
from dualblade.targets.base import Deallocation

# linux/fs.h
_BLKDISCARD = 0x1277
_BLKGETSIZE64 = 0x80081272
_BLKSSZGET = 0x1268


class BlockTarget:
    """A block device that the configuration names by its serial, with nothing on it, opened exclusively."""

    backend = "block"
    namespace_id = 0

    def __init__(self, storage: StorageConfig, size_bytes: int) -> None:
        if storage.block_device is None or storage.serial is None:
            raise ConfigurationError(
                "storage.backend=block writes to a raw device, so both storage.block_device and its storage.serial "
                "must be given; `lsblk -o NAME,SERIAL,SIZE` shows them"
            )
        self._path = Path(storage.block_device)
        self.first_byte = storage.first_lba * storage.lba_bytes
        self.chunk_bytes = storage.chunk_bytes
        self._range = self.first_byte, size_bytes
        self.fd = -1
        self.deallocated: Deallocation | None = None
        _check_serial(self._path, storage.serial)
        ownership.refuse_users(self._path)
        self.fd = ownership.open_exclusive(self._path)
        try:
            ownership.refuse_signature(self._path)
            self._check_size(storage.lba_bytes)
            check_direct(self.fd, str(self), storage.lba_bytes)
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)  # pages of the signature search
        except BaseException:
            os.close(self.fd)
            raise

    def __str__(self) -> str:
        return str(self._path)

    def _check_size(self, lba_bytes: int) -> None:
        device_bytes = _ioctl_number(self.fd, _BLKGETSIZE64, "Q")
        sector_bytes = _ioctl_number(self.fd, _BLKSSZGET, "I")
        if lba_bytes % sector_bytes:
            raise ConfigurationError(
                f"storage.lba_bytes={lba_bytes} is no multiple of the {sector_bytes}-byte sectors of {self}; "
                f"use {max(sector_bytes, 4096)}"
            )
        end_byte = sum(self._range)
        if end_byte > device_bytes:
            raise StorageError(
                f"{self} holds {device_bytes:,} bytes and this run needs {end_byte:,}; "
                "use a larger device, a lower storage.first_lba or a larger scale"
            )

    def direct(self) -> bool:
        return is_direct(self.fd)

    def resident_bytes(self) -> int:
        return resident_bytes(self.fd, sum(self._range))

    def device_facts(self) -> None:
        return None

    def close(self, *, in_doubt: bool = False) -> None:
        try:
            if self.fd >= 0 and not in_doubt:
                self.deallocated = self._discard()
        finally:
            self.release()

    def release(self) -> None:
        """Close the device without a discard, for a caller that wrote nothing; safe to call twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _discard(self) -> Deallocation | None:
        try:
            fcntl.ioctl(self.fd, _BLKDISCARD, struct.pack("QQ", *self._range))
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise StorageError(f"cannot discard this run's extents on {self}: {error.strerror}") from None
            return None
        return Deallocation(self._range[1], checked_bytes=0, zero_bytes=0, zeroes_promised=False)


def _check_serial(path: Path, serial: str) -> None:
    """Check that this is the device that the user means: a name like nvme0n1 may change at boot, a serial does not."""
    found = device_serial(path)
    if found != serial:
        raise StorageError(
            f"{path} has serial {found or 'none'!r}, but storage.serial={serial!r} was asked for; nothing was written"
        )


def device_serial(path: Path) -> str | None:
    """Return the serial of a whole disk from sysfs; for a loop device, its backing file."""
    device = BlockDevice(Path(f"/sys/dev/block/{device_number(path)}"))  # a partition has no serial: it is refused
    return device.serial or device.attribute("loop/backing_file")


def _ioctl_number(fd: int, request: int, format: str) -> int:
    value = fcntl.ioctl(fd, request, struct.pack(format, 0))
    return int(struct.unpack(format, value)[0])
