"""The disk below a folder: its identity, its queue, and its readahead for as long as a run lasts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualblade.errors import StorageError
from dualblade.linux.mounts import Mount, mount_of, read_mounts
from experiments.machine.journal import Journal

QUEUE_SETTINGS = ("scheduler", "rotational", "nr_requests", "max_sectors_kb", "max_hw_sectors_kb", "read_ahead_kb")


@dataclass(frozen=True)
class BlockDevice:
    """A whole device in sysfs, the one whose queue the file system uses: a disk, or a mapping over disks."""

    sysfs: Path

    @classmethod
    def of_number(cls, major: int, minor: int, sys_root: Path = Path("/sys")) -> BlockDevice:
        """By device number."""
        return cls._whole(sys_root / f"dev/block/{major}:{minor}")

    @classmethod
    def of_node(cls, node: Path) -> BlockDevice:
        """By the path of its device node, which may be a partition's."""
        number = os.stat(node).st_rdev
        return cls.of_number(os.major(number), os.minor(number))

    @classmethod
    def _whole(cls, link: Path) -> BlockDevice:
        """A partition has no queue of its own, its disk has."""
        sysfs = link.resolve()
        return cls(sysfs.parent if (sysfs / "partition").exists() else sysfs)

    @property
    def name(self) -> str:
        return self.sysfs.name

    @property
    def number(self) -> int:
        """The kernel's own dev_t, as its tracepoints show it (include/linux/kdev_t.h)."""
        major, minor = map(int, (self.sysfs / "dev").read_text().split(":"))
        return major << 20 | minor

    @property
    def block_bytes(self) -> int:
        """Its logical block: what it reads and writes at least, and direct I/O in multiples of."""
        return int((self.sysfs / "queue/logical_block_size").read_text())

    @property
    def read_ahead(self) -> Path:
        return self.sysfs / "queue/read_ahead_kb"

    def identity(self) -> dict[str, str | None]:
        """What stays the same when names change between boots."""
        disk = self.disk()
        return {
            "name": self.name,
            "model": _first(disk.sysfs, "device/model"),
            "serial": _first(disk.sysfs, "serial", "device/serial", "wwid", "device/wwid"),
        }

    def queue(self) -> dict[str, str | None]:
        return {name: _first(self.sysfs, f"queue/{name}") for name in QUEUE_SETTINGS}

    def disk(self) -> BlockDevice:
        """The disk below a mapping, if it is one disk."""
        slaves = list((self.sysfs / "slaves").glob("*"))
        return self._whole(slaves[0]).disk() if len(slaves) == 1 else self


def backing_device(mount: Mount) -> BlockDevice | None:
    """The device that a mount lies on; btrfs and others name it as their source, under a number of their own."""
    major, minor = (int(part) for part in mount.device.split(":"))
    if major:
        return BlockDevice.of_number(major, minor)
    source = Path(mount.source)
    return BlockDevice.of_node(source) if source.is_block_device() else None


def describe(folder: Path) -> dict[str, Any]:
    """Storage identity and settings in force, as they go into a result."""
    mount = mount_of(folder, read_mounts())
    device = backing_device(mount)
    settings = {**device.identity(), **device.queue()} if device else {"name": None, "model": None, "serial": None}
    return {**settings, "file_system": mount.fs_type, "mount_options": f"{mount.options},{mount.super_options}"}


@contextlib.contextmanager
def readahead(folder: Path, kib: int | None, journal: Journal) -> Iterator[int | None]:
    """Readahead of the disk below a folder set to `kib` inside the block; yields what it was before.

    Raises:
        StorageError: it cannot be set, or does not take effect.
    """
    device = backing_device(mount := mount_of(folder, read_mounts()))
    if device is None:
        if kib is None:
            yield None
            return
        raise StorageError(
            f"storage.directory={folder} lies on {mount.fs_type}, which no block device backs, so its readahead cannot "
            f"be set to {kib} KiB; choose a folder on a disk, or set storage.read_ahead_kb=null"
        )
    before = int(device.read_ahead.read_text())
    if kib is None or kib == before:
        yield before
        return
    with journal.undo("write_value", str(device.read_ahead), str(before)):
        _set_readahead(device, kib, before)
        yield before


def _set_readahead(device: BlockDevice, kib: int, before_kib: int) -> None:
    try:
        device.read_ahead.write_text(str(kib))
    except PermissionError:
        raise StorageError(
            f"readahead of {device.name} is {before_kib} KiB and only root may set it to {kib}; run as root, or set "
            "storage.read_ahead_kb=null to leave and record it"
        ) from None
    if int(device.read_ahead.read_text()) != kib:
        raise StorageError(
            f"{device.read_ahead} reads {device.read_ahead.read_text().strip()} after {kib} was written; choose "
            "another storage.read_ahead_kb"
        )


def _first(folder: Path, *names: str) -> str | None:
    """The first attribute that the device has."""
    for name in names:
        with contextlib.suppress(OSError):
            return (folder / name).read_text().strip()
    return None
