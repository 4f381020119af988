"""A block device as the direct path's target: the one the configuration names by serial, with nothing on it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import subprocess
from pathlib import Path

from dualblade.config import StorageConfig
from dualblade.direct_io import check_direct, is_direct
from dualblade.errors import ConfigurationError, StorageError
from dualblade.page_residency import resident_bytes

# linux/fs.h
_BLKDISCARD = 0x1277
_BLKGETSIZE64 = 0x80081272
_BLKSSZGET = 0x1268


class BlockTarget:
    """A block device that the configuration names by serial, with nothing on it, opened exclusively."""

    backend = "block"

    def __init__(self, storage: StorageConfig, first_byte: int, size_bytes: int) -> None:
        if storage.block_device is None or storage.serial is None:
            raise ConfigurationError(
                "storage.backend=block writes to a raw device, so both storage.block_device and its storage.serial "
                "must be given; `lsblk -o NAME,SERIAL,SIZE` shows them"
            )
        self._path = Path(storage.block_device)
        self._range = first_byte, size_bytes
        self.fd = -1
        self.deallocated = False
        _check_serial(self._path, storage.serial)
        _refuse_signature(self._path)
        self.fd = _open_exclusive(self._path)
        try:
            self._check_size(storage.lba_bytes)
            check_direct(self.fd, str(self), storage.lba_bytes)
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)  # what the search for signatures read
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

    def close(self) -> None:
        if self.fd >= 0:
            self.deallocated = self._discard()
            os.close(self.fd)
            self.fd = -1

    def _discard(self) -> bool:
        try:
            fcntl.ioctl(self.fd, _BLKDISCARD, struct.pack("QQ", *self._range))
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise StorageError(f"cannot discard this run's extents on {self}: {error.strerror}") from None
            return False
        return True


def _open_exclusive(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_EXCL | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        cure = {
            errno.EBUSY: "it is mounted, swapped to or held by another device; free it or name another one",
            errno.EACCES: "run as root, or give your user access to the device",
            errno.ENOENT: "check storage.block_device",
        }.get(error.errno or 0, "check storage.block_device")
        raise StorageError(f"cannot open {path} for raw writes: {error.strerror}; {cure}") from None


def _check_serial(path: Path, serial: str) -> None:
    """The device must be the one the user means: names like nvme0n1 change between boots, serials do not."""
    found = device_serial(path)
    if found != serial:
        raise StorageError(
            f"{path} has serial {found or 'none'!r}, but storage.serial={serial!r} was asked for; nothing was written"
        )


def device_serial(path: Path) -> str | None:
    """Serial of a whole disk as sysfs shows it; a loop device is identified by its backing file."""
    try:
        mode = os.stat(path)
    except OSError as error:
        raise StorageError(f"cannot find storage.block_device={path}: {error.strerror}") from None
    if not stat.S_ISBLK(mode.st_mode):
        raise ConfigurationError(f"storage.block_device={path} is not a block device")
    sysfs = Path(f"/sys/dev/block/{os.major(mode.st_rdev)}:{os.minor(mode.st_rdev)}")
    for attribute in ("serial", "device/serial", "device/wwid", "loop/backing_file"):
        try:
            return (sysfs / attribute).read_text().strip()
        except OSError:
            continue
    return None


def _refuse_signature(path: Path) -> None:
    """Nothing may be on the device: blkid -p exits with 2 where it knows no signature at all."""
    probe = subprocess.run(["blkid", "-p", str(path)], capture_output=True, text=True, check=False)
    if probe.returncode != 2:
        raise StorageError(
            f"{path} is not empty ({probe.stdout.strip() or probe.stderr.strip() or 'unreadable'}); "
            "wipe it yourself (wipefs -a) if its content may be lost"
        )


def _ioctl_number(fd: int, request: int, format: str) -> int:
    value = fcntl.ioctl(fd, request, struct.pack(format, 0))
    return int(struct.unpack(format, value)[0])
