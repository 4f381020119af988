"""Targets of the direct path: what Group 2's LBAs lie on, a preallocated file or a block device, opened O_DIRECT.

One place opens them, and the mode in force is read back: a flag that was asked for proves nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import subprocess
from pathlib import Path
from typing import Protocol

from dualblade.config import StorageConfig
from dualblade.errors import ConfigurationError, StorageError
from dualblade.page_residency import resident_bytes
from dualblade.uring import dio_alignment_bytes

# linux/fs.h
_BLKDISCARD = 0x1277
_BLKGETSIZE64 = 0x80081272
_BLKSSZGET = 0x1268

# File systems in memory take O_DIRECT since Linux 6.6 and ignore it (linux/magic.h: TMPFS_MAGIC, RAMFS_MAGIC).
_MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs", "devtmpfs"}


class Target(Protocol):
    """A file descriptor for direct I/O, and the bytes of it that this run owns."""

    backend: str
    fd: int

    def __str__(self) -> str: ...

    def direct(self) -> bool:
        """Whether O_DIRECT is in force on the descriptor now."""
        ...

    def resident_bytes(self) -> int:
        """Bytes of the target in the page cache: 0 as long as every transfer was direct."""
        ...

    def close(self) -> None:
        """Give the space back to the storage and close; safe to call twice."""
        ...


def open_target(storage: StorageConfig, first_byte: int, size_bytes: int) -> Target:
    """Open and reserve [first_byte, first_byte + size_bytes) on the configured backend.

    Raises:
        StorageError: no direct I/O there, no space, or a device that is not ours to write.
    """
    if storage.backend == "block":
        return BlockTarget(storage, first_byte, size_bytes)
    return FileTarget(Path(storage.directory), storage.lba_bytes, first_byte + size_bytes)


class FileTarget:
    """One preallocated file without a name: the kernel takes its space back even if this process is killed."""

    backend = "file"

    def __init__(self, directory: Path, lba_bytes: int, size_bytes: int) -> None:
        self._name = f"the direct file in {directory}"
        _refuse_memory_file_system(directory)
        self.fd = _open_nameless(directory)
        try:
            _check_direct(self.fd, self._name, lba_bytes)
            _reserve(self.fd, directory, size_bytes)
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return self._name

    def direct(self) -> bool:
        return _is_direct(self.fd)

    def resident_bytes(self) -> int:
        return resident_bytes(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


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
            _check_direct(self.fd, str(self), storage.lba_bytes)
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
        return _is_direct(self.fd)

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


def _open_nameless(directory: Path) -> int:
    """Create a file for direct I/O and remove its name at once."""
    path = directory / f".direct-{os.getpid()}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno == errno.EINVAL:
            raise _no_direct_io(directory) from None
        raise StorageError(f"cannot create a file in storage.directory={directory}: {error.strerror}") from None
    path.unlink()
    return fd


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


def _refuse_memory_file_system(directory: Path) -> None:
    if file_system(directory) in _MEMORY_FILE_SYSTEMS:
        raise _no_direct_io(directory)


def _no_direct_io(directory: Path) -> StorageError:
    return StorageError(
        f"storage.directory={directory} lies on {file_system(directory)}, which has no direct I/O; "
        "choose a folder on ext4, xfs or btrfs"
    )


def file_system(directory: Path) -> str:
    """Type of the file system that holds `directory` (proc(5), mountinfo)."""
    device = os.stat(directory).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == wanted:
            return rest.split()[0]
    return "an unknown file system"


def _is_direct(fd: int) -> bool:
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)


def _check_direct(fd: int, name: str, lba_bytes: int) -> None:
    """Read back that I/O on `fd` bypasses the page cache, and that the LBA size suits it."""
    if not _is_direct(fd):
        raise StorageError(f"{name} was opened with O_DIRECT but the flag is not in force; choose another storage")
    alignment_bytes = dio_alignment_bytes(fd)
    if alignment_bytes == 0:
        raise StorageError(f"{name} has no direct I/O (statx); choose a folder on ext4, xfs or btrfs")
    if lba_bytes % (alignment_bytes or 512):
        raise ConfigurationError(
            f"storage.lba_bytes={lba_bytes} is no multiple of the {alignment_bytes}-byte alignment that direct I/O on "
            f"{name} needs; use {max(alignment_bytes or 512, 4096)}"
        )


def _reserve(fd: int, directory: Path, size_bytes: int) -> None:
    try:
        os.posix_fallocate(fd, 0, max(size_bytes, 1))
    except OSError as error:
        free = os.statvfs(directory)
        raise StorageError(
            f"cannot reserve {size_bytes:,} bytes in storage.directory={directory}: {error.strerror} "
            f"({free.f_bavail * free.f_frsize:,} bytes free); free some space, choose another folder or a larger scale"
        ) from None


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
