"""An NVMe SSD as QEMU emulates it: its image with two partitions, and the options that make a device of it."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dualblade.config.sections import read_section
from dualblade.errors import ConfigurationError
from dualblade.units import GB, MIB
from experiments.errors import MachineError

SECTION = "emulated_ssd"
CAP_PAGE_BYTES = 4096  # CAP.MPSMIN of the emulated controller: MDTS counts in powers of two of it
FIRST_PARTITION_BYTES = MIB
PARTITION_TYPE = 0x83  # MBR: Linux
SECTOR_BYTES = 512  # the unit of blkdebug
MBR_TABLE, MBR_MARK = 446, b"\x55\xaa"


@dataclass(frozen=True)
class EmulatedSsd:
    """One controller with one namespace: partition 1 holds ext4 for Group 1, partition 2 is Group 2's raw range.

    Rates are in MB/s (decimal), None for an SSD that is as fast as the host lets it. Reads of blocks in
    `read_error_lbas`, and writes of those in `write_error_lbas`, fail as on worn media.
    """

    serial: str
    size_mib: int
    file_system_mib: int
    lba_bytes: int
    mdts_kib: int
    queue_pairs: int
    read_mb_per_s: int | float | None = None  # whole ones stay so: a configuration's hash tells 100 from 100.0
    write_mb_per_s: int | float | None = None
    read_error_lbas: tuple[int, ...] = ()
    write_error_lbas: tuple[int, ...] = ()

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> EmulatedSsd:
        """Read an SSD from its section of the configuration.

        Raises:
            ConfigurationError: a setting is missing or unknown, or a value that the emulation cannot give.
        """
        return read_section(cls, data, f"{SECTION}.")

    def __post_init__(self) -> None:
        doublings, rest = divmod(self.mdts_kib * 1024, CAP_PAGE_BYTES)
        allowed = {
            "lba_bytes": (self.lba_bytes in (512, 4096), "512 or 4096"),
            "mdts_kib": (not rest and doublings.bit_count() == 1, "4 times a power of two"),
            "file_system_mib": (0 < self.file_system_mib < self.size_mib - 1, f"less than size_mib={self.size_mib}"),
            "queue_pairs": (1 <= self.queue_pairs <= 64, "1 to 64"),
            "read_mb_per_s": (self.read_mb_per_s is None or self.read_mb_per_s > 0, "more than 0, or null"),
            "write_mb_per_s": (self.write_mb_per_s is None or self.write_mb_per_s > 0, "more than 0, or null"),
        }
        for name, (holds, what) in allowed.items():
            if not holds:
                raise ConfigurationError(f"{SECTION}.{name}={getattr(self, name)} cannot be emulated; give {what}")

    @property
    def partitions(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return first byte and size of the two partitions."""
        split = FIRST_PARTITION_BYTES + self.file_system_mib * MIB
        return (FIRST_PARTITION_BYTES, self.file_system_mib * MIB), (split, self.size_mib * MIB - split)

    def make_image(self, path: Path) -> None:
        """Make a sparse file with a partition table and an empty ext4 without pending background work."""
        with open(path, "wb") as image:
            image.truncate(self.size_mib * MIB)
            image.write(self._partition_table())
        start, size = self.partitions[0]
        options = f"offset={start},lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        command = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-E", options, str(path), f"{size // 1024}k"]
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
            )
        except FileNotFoundError:
            raise MachineError(
                "no file system for the guest's SSD: mkfs.ext4 is not there; install e2fsprogs"
            ) from None
        except subprocess.CalledProcessError as error:
            raise MachineError(f"no file system for the guest's SSD: mkfs.ext4: {error.stderr.strip()}") from None

    def _partition_table(self) -> bytes:
        """Return a master boot record in blocks of the namespace; cylinder addresses are left empty."""
        entry = struct.Struct("<B3sB3sII")
        nowhere = b"\xfe\xff\xff"
        entries = b"".join(
            entry.pack(0, nowhere, PARTITION_TYPE, nowhere, start // self.lba_bytes, size // self.lba_bytes)
            for start, size in self.partitions
        )
        return bytes(MBR_TABLE) + entries.ljust(4 * entry.size, b"\0") + MBR_MARK

    def options(self, image: Path, name: str, aio: str) -> list[str]:
        """Return QEMU's options for a controller in slot `NAME-slot` and its namespace; the drive's id is `name`."""
        mdts = (self.mdts_kib * 1024 // CAP_PAGE_BYTES).bit_length() - 1
        block = f"logical_block_size={self.lba_bytes},physical_block_size={self.lba_bytes}"
        controller = f"nvme,id={name}-ctrl,serial={self.serial},mdts={mdts},max_ioqpairs={self.queue_pairs}"
        return [
            *("-drive", f"if=none,id={name},format=raw,discard=unmap{self._file(image, aio)}{self._throttle()}"),
            *("-device", f"{controller},bus={name}-slot"),
            *("-device", f"nvme-ns,drive={name},bus={name}-ctrl,{block}"),
        ]

    def _throttle(self) -> str:
        """Return the throttle: a leaky bucket with a tenth of a second of credit, so the rate is an average."""
        rates = {"bps-read": self.read_mb_per_s, "bps-write": self.write_mb_per_s}
        return "".join(f",throttling.{key}={round(rate * GB / 1000)}" for key, rate in rates.items() if rate)

    def _file(self, image: Path, aio: str) -> str:
        """Return the file's options: no host page cache, and QEMU's error injection (blkdebug) for bad blocks."""
        bad = [("read", lba) for lba in self.read_error_lbas] + [("write", lba) for lba in self.write_error_lbas]
        if not bad:
            return f",file={image},cache=none,aio={aio}"
        where = ",file.driver=blkdebug,file.image.driver=file"
        image_options = f",file.image.filename={image},file.image.cache.direct=on,file.image.aio={aio}"
        rules = [
            f",file.inject-error.{turn}.{key}={value}"
            for turn, (kind, lba) in enumerate(bad)
            for key, value in {"event": "none", "iotype": kind, "sector": lba * self.lba_bytes // SECTOR_BYTES}.items()
        ]
        return where + image_options + "".join(rules)


def described(conf: Path) -> dict[str, EmulatedSsd]:
    """Return the SSDs of conf/storage by name; each guest has all of them."""
    found = {}
    for path in sorted((conf / "storage").glob("*.yaml")):
        if section := yaml.safe_load(path.read_text()).get(SECTION):
            found[path.stem] = EmulatedSsd.from_mapping(section)
    return found
