"""An NVMe namespace, found by its controller's serial number, and its properties.

Byte offsets are those of the NVM Express specifications (figures "Identify Controller Data Structure" and "Identify
Namespace Data Structure, NVM Command Set"). Limits are queried, never assumed: what one command may move is the least
of what the device takes (MDTS) and what the kernel lets through (queue/max_hw_sectors_kb, queue/max_segments).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dualblade.errors import ConfigurationError, StorageError
from dualblade.linux import nvme_command
from dualblade.linux.block_device import SECTOR_BYTES

KIB = 1024
_SMALLEST_PAGE_BYTES = 4096  # MDTS counts in CAP.MPSMIN: Linux drives no controller that needs more than its own page
_HAS_DATASET_MANAGEMENT = 1 << 2  # ONCS
_READS_ZEROES = 1  # DLFEAT bits 2:0


@dataclass(frozen=True)
class Controller:
    """Identify Controller. `mdts_bytes` is what one command may move, None without a limit."""

    serial: str
    model: str
    firmware: str
    mdts_bytes: int | None
    has_deallocate: bool

    @classmethod
    def parse(cls, data: bytes) -> Controller:
        mdts = data[77]
        oncs = int.from_bytes(data[520:522], "little")
        return cls(
            serial=_text(data[4:24]),
            model=_text(data[24:64]),
            firmware=_text(data[64:72]),
            mdts_bytes=_SMALLEST_PAGE_BYTES << mdts if mdts else None,
            has_deallocate=bool(oncs & _HAS_DATASET_MANAGEMENT),
        )


@dataclass(frozen=True)
class Format:
    """Identify Namespace: its size, and the block format in use. `reads_zeroes`: promised of deallocated blocks."""

    n_blocks: int
    lba_bytes: int
    metadata_bytes: int
    eui64: str | None
    nguid: str | None
    reads_zeroes: bool

    @classmethod
    def parse(cls, data: bytes) -> Format:
        flbas = data[26]
        index = flbas & 0xF | (flbas >> 1 & 0x30 if data[25] > 16 else 0)  # bits 6:5 extend it beyond 16 formats
        lba_format = data[128 + 4 * index : 132 + 4 * index]
        return cls(
            n_blocks=int.from_bytes(data[0:8], "little"),
            lba_bytes=1 << lba_format[2],
            metadata_bytes=int.from_bytes(lba_format[0:2], "little"),
            eui64=_identifier(data[120:128]),
            nguid=_identifier(data[104:120]),
            reads_zeroes=data[33] & 0x7 == _READS_ZEROES,
        )


@dataclass(frozen=True)
class Queue:
    """Limits of the kernel's queue: bytes and segments of one command, commands in flight, and whether it polls."""

    most_bytes: int
    most_segments: int
    entries: int
    polls: bool = False

    @classmethod
    def read(cls, sysfs: Path) -> Queue:
        limits = {name: int((sysfs / "queue" / name).read_text()) for name in _QUEUE_LIMITS}
        most_bytes = limits["max_hw_sectors_kb"] * KIB
        return cls(most_bytes, limits["max_segments"], limits["nr_requests"], bool(limits["io_poll"]))


_QUEUE_LIMITS = ("max_hw_sectors_kb", "max_segments", "nr_requests", "io_poll")


@dataclass(frozen=True)
class Partition:
    """Blocks `blocks` of the namespace; passthrough commands know nothing of it."""

    number: int
    device: Path
    blocks: range


@dataclass(frozen=True)
class Namespace:
    """A namespace as the kernel shows it: `sysfs` is its block device's folder."""

    sysfs: Path

    @property
    def name(self) -> str:
        return self.sysfs.name

    @property
    def block_device(self) -> Path:
        return Path("/dev") / self.name

    @property
    def character_device(self) -> Path:
        """The node that takes native commands: ng0n1 for nvme0n1 (drivers/nvme/host/core.c, nvme_add_ns_cdev)."""
        return Path("/dev") / f"ng{self.name.removeprefix('nvme')}"

    @property
    def nsid(self) -> int:
        return int((self.sysfs / "nsid").read_text())

    @property
    def serial(self) -> str:
        return (self.sysfs / "device/serial").read_text().strip()

    @property
    def wwid(self) -> str:
        """Return the unique name of the namespace: its eui64, or model and serial if it has none."""
        return (self.sysfs / "wwid").read_text().strip()

    def queue(self) -> Queue:
        return Queue.read(self.sysfs)

    def partitions(self, lba_bytes: int) -> list[Partition]:
        """Return the partitions that the kernel knows."""
        return sorted(self._partitions(lba_bytes), key=lambda partition: partition.number)

    def _partitions(self, lba_bytes: int) -> Iterator[Partition]:
        for folder in self.sysfs.glob(f"{self.name}p*"):
            number, start, size = (int((folder / name).read_text()) for name in ("partition", "start", "size"))
            first_lba, n_blocks = start * SECTOR_BYTES // lba_bytes, size * SECTOR_BYTES // lba_bytes
            yield Partition(number, Path("/dev") / folder.name, range(first_lba, first_lba + n_blocks))


@dataclass(frozen=True)
class Identity:
    """Everything about an open namespace that a run and its result need."""

    nsid: int
    wwid: str
    controller: Controller
    format: Format
    queue: Queue

    @classmethod
    def of(cls, namespace: Namespace, fd: int) -> Identity:
        """Ask the device (`fd` is its character device) and the kernel.

        Raises:
            StorageError: passthrough is not allowed, or the device is another than sysfs said.
        """
        nsid = namespace.nsid
        controller = Controller.parse(nvme_command.identify(fd, nvme_command.IDENTIFY_CONTROLLER))
        if controller.serial != namespace.serial:
            raise StorageError(
                f"{namespace.character_device} says that its serial is {controller.serial!r}, the kernel has "
                f"{namespace.serial!r}; nothing was written; rescan the devices"
            )
        lba_format = Format.parse(nvme_command.identify(fd, nvme_command.IDENTIFY_NAMESPACE, nsid))
        return cls(nsid, namespace.wwid, controller, lba_format, namespace.queue())

    @property
    def most_chunk_bytes(self) -> int:
        """The largest command: whole blocks within every limit, whatever pages its memory lies in."""
        return most_chunk_bytes(
            self.format.lba_bytes, self.controller.mdts_bytes, self.queue, os.sysconf("SC_PAGESIZE")
        )


def most_chunk_bytes(lba_bytes: int, mdts_bytes: int | None, queue: Queue, page_bytes: int) -> int:
    """The largest multiple of the block size within min(MDTS, max_hw_sectors, max_segments * page)."""
    limits = [queue.most_bytes, queue.most_segments * page_bytes, *([mdts_bytes] if mdts_bytes else [])]
    return min(limits) // lba_bytes * lba_bytes


def namespaces(sys_root: Path = Path("/sys")) -> list[Namespace]:
    """Return the namespaces that are block devices (hidden paths of a multipath namespace have no nsid)."""
    folders = sorted((sys_root / "block").glob("nvme*"))
    return [Namespace(folder.resolve()) for folder in folders if (folder / "nsid").exists()]


def find(serial: str, nsid: int | None = None, sys_root: Path = Path("/sys")) -> Namespace:
    """The namespace `nsid` of the controller with this serial; with None, its only one.

    Raises:
        StorageError: there is no such device.
        ConfigurationError: it has several namespaces and none was named.
    """
    present = namespaces(sys_root)
    serials = sorted({namespace.serial for namespace in present})
    of_serial = [namespace for namespace in present if namespace.serial == serial]
    if not of_serial:
        raise StorageError(
            f"no NVMe device has serial {serial!r}; present: {', '.join(serials) or 'none'}; "
            "check storage.serial, nothing was written"
        )
    matches = [namespace for namespace in of_serial if nsid is None or namespace.nsid == nsid]
    numbers = ", ".join(str(namespace.nsid) for namespace in of_serial)
    if not matches:
        raise StorageError(f"NVMe device {serial!r} has no namespace {nsid}; set storage.namespace to one of {numbers}")
    if len(matches) > 1:
        raise ConfigurationError(f"NVMe device {serial!r} has namespaces {numbers}; say which by storage.namespace")
    return matches[0]


def _text(field: bytes) -> str:
    return field.decode("ascii", "replace").strip(" \0")


def _identifier(field: bytes) -> str | None:
    return field.hex() if any(field) else None
