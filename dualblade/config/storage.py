"""Configuration of the storage that the tensors are written to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dualblade.config.sections import require, require_within
from dualblade.units import END_BYTE, GIB, MIB

QUEUE_DEPTHS = 1, 4096  # of one ring, well below the kernel's IORING_MAX_ENTRIES
LBA_BYTES = 512, MIB
CHUNK_BYTES = 512, GIB  # the kernel moves less than 2 GiB at once (MAX_RW_COUNT)
TIMEOUTS_S = 0.001, 86_400
RATES_GB_PER_S = 0.0001, 1_000_000
LATENCIES_US = 0, 60_000_000
READ_AHEAD_KB = 0, MIB


@dataclass(frozen=True)
class PaceConfig:
    """A stated device, emulated on a faster real one: it serves the direct path's commands one by one at its rates."""

    name: str
    read_gb_per_s: float
    write_gb_per_s: float
    latency_us: float = 0.0

    def __post_init__(self) -> None:
        for name in ("read_gb_per_s", "write_gb_per_s"):
            require_within(getattr(self, name), RATES_GB_PER_S, f"storage.pace.{name}")
        require_within(self.latency_us, LATENCIES_US, "storage.pace.latency_us")


@dataclass(frozen=True)
class StorageConfig:
    """Where the tensors go. Group 1 always lives in files under `directory`; `backend` serves Group 2.

    A device for raw writes must be empty and is named by `serial`. Backend "block" needs its path in `block_device` as
    well. Backend "nvme" finds it by its serial, and by `namespace` if it has several. LBAs count from the start of the
    `partition`, or of the whole namespace, whose last LBA must then be given. `records` is the folder that keeps the
    list of written blocks in case a run is killed (None: `directory`). `pace` limits the direct path to the rates of a
    stated device.
    """

    name: str
    directory: str
    backend: Literal["file", "block", "nvme"] = "file"
    block_device: str | None = None
    serial: str | None = None
    namespace: int | None = None
    partition: int | None = None
    lba_bytes: int = 4096
    first_lba: int = 0
    last_lba: int | None = None
    records: str | None = None
    iopoll: bool = False
    chunk_bytes: int = MIB
    queue_depth: int = 16
    timeout_s: float = 60.0
    pace: PaceConfig | None = None
    page_cache_io: Literal["mmap", "rw"] = "mmap"
    checksum: bool = False
    read_ahead_kb: int | None = 128
    dirty_pages: Literal["budget", "machine"] = "budget"

    def __post_init__(self) -> None:
        lba, chunk = self.lba_bytes, self.chunk_bytes
        require_within(lba, LBA_BYTES, "storage.lba_bytes")
        require(lba & (lba - 1) == 0, f"storage.lba_bytes={lba}", "a power of two, at least 512")
        require_within(chunk, CHUNK_BYTES, "storage.chunk_bytes")
        require(chunk % lba == 0, f"storage.chunk_bytes={chunk}", f"a multiple of lba_bytes={lba}")
        require_within(self.queue_depth, QUEUE_DEPTHS, "storage.queue_depth")
        end_lba = END_BYTE // lba
        require_within(self.first_lba, (0, end_lba - 1), "storage.first_lba")
        last = self.first_lba if self.last_lba is None else self.last_lba
        lbas = f"first_lba={self.first_lba} to {end_lba - 1}"
        require(self.first_lba <= last < end_lba, f"storage.last_lba={last}", lbas)
        require(
            not self.iopoll or self.backend == "nvme", "storage.iopoll=true", "it with storage.backend=nvme, or false"
        )
        require_within(self.timeout_s, TIMEOUTS_S, "storage.timeout_s")
        require_within(self.read_ahead_kb or 0, READ_AHEAD_KB, "storage.read_ahead_kb")
