"""Block devices as sysfs shows them: number, identity, block size and queue."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from dualblade.errors import ConfigurationError, StorageError
from dualblade.linux.mounts import Mount

SECTOR_BYTES = 512  # unit in which the kernel counts places and sizes, whatever the device's block size
QUEUE_SETTINGS = ("scheduler", "rotational", "nr_requests", "max_sectors_kb", "max_hw_sectors_kb", "read_ahead_kb")


@dataclass(frozen=True)
class BlockDevice:
    """A whole device in sysfs, the one whose queue the file system uses: a disk, or a mapping over disks."""

    sysfs: Path

    @classmethod
    def of_number(cls, major: int, minor: int, sys_root: Path = Path("/sys")) -> BlockDevice:
        """The device with this number, or the disk of a partition with it."""
        return cls._whole(sys_root / f"dev/block/{major}:{minor}")

    @classmethod
    def of_node(cls, node: Path) -> BlockDevice:
        """The device with this node, or the disk of a partition with it."""
        number = os.stat(node).st_rdev
        return cls.of_number(os.major(number), os.minor(number))

    @classmethod
    def _whole(cls, link: Path) -> BlockDevice:
        """Return the disk of a partition: a partition has no queue of its own."""
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
        """Size of a logical block: the unit of reads, writes and direct I/O."""
        return int((self.sysfs / "queue/logical_block_size").read_text())

    @property
    def read_ahead(self) -> Path:
        return self.sysfs / "queue/read_ahead_kb"

    @property
    def serial(self) -> str | None:
        """Serial number of the disk, or its worldwide identifier; None if it has neither."""
        return self.attribute("serial", "device/serial", "wwid", "device/wwid")

    def identity(self) -> dict[str, str | None]:
        """Name, model and serial; model and serial stay the same when names change between boots."""
        disk = self.disk()
        return {"name": self.name, "model": disk.attribute("device/model"), "serial": disk.serial}

    def queue(self) -> dict[str, str | None]:
        return {name: self.attribute(f"queue/{name}") for name in QUEUE_SETTINGS}

    def disk(self) -> BlockDevice:
        """The disk below a mapping, if it is one disk."""
        slaves = list((self.sysfs / "slaves").glob("*"))
        return self._whole(slaves[0]).disk() if len(slaves) == 1 else self

    def attribute(self, *names: str) -> str | None:
        """The first of these attributes that the device has."""
        for name in names:
            with contextlib.suppress(OSError):
                return (self.sysfs / name).read_text().strip()
        return None


def backing_device(mount: Mount) -> BlockDevice | None:
    """The device below a mount. btrfs and others have a number of their own, but name the device as their source."""
    major, minor = (int(part) for part in mount.device.split(":"))
    if major:
        return BlockDevice.of_number(major, minor)
    source = Path(mount.source)
    return BlockDevice.of_node(source) if source.is_block_device() else None


def device_number(node: Path) -> str:
    """major:minor of a block device that the configuration names.

    Raises:
        StorageError: there is no such device.
        ConfigurationError: it is something else.
    """
    try:
        status = os.stat(node)
    except OSError as error:
        raise StorageError(f"cannot find the device {node} that storage names: {error.strerror}") from None
    if not stat.S_ISBLK(status.st_mode):
        raise ConfigurationError(f"the device {node} that storage names is not a block device")
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
