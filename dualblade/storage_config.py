"""Where the tensors go, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dualblade.sections import require
from dualblade.units import MIB

MOST_QUEUE_DEPTH = 4096  # of one ring, well below the kernel's IORING_MAX_ENTRIES


@dataclass(frozen=True)
class PaceConfig:
    """A stated device in place of a faster real one: it serves the direct path's commands one by one, no faster."""

    name: str
    read_gb_per_s: float
    write_gb_per_s: float
    latency_us: float = 0.0

    def __post_init__(self) -> None:
        for name in ("read_gb_per_s", "write_gb_per_s"):
            value = getattr(self, name)
            require(value > 0, f"storage.pace.{name}={value}", "more than 0")
        require(self.latency_us >= 0, f"storage.pace.latency_us={self.latency_us}", "0 or more")


@dataclass(frozen=True)
class StorageConfig:
    """Where the tensors go. Group 1 always lives in files under `directory`; `backend` serves Group 2.

    A device for raw writes has nothing on it and is named by `serial`: for backend "block" beside its path in
    `block_device`; for "nvme" it is found by it, and by `namespace` where it has several. LBAs count from the start of
    what is named: the `partition`, or the whole namespace, of which the last LBA has to be given. `records` is the
    folder that remembers which blocks a run wrote, should it be killed (None: `directory`). `pace` holds the direct
    path to the rates of a stated device.
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
        require(lba >= 512 and lba & (lba - 1) == 0, f"storage.lba_bytes={lba}", "a power of two, at least 512")
        require(chunk > 0 and chunk % lba == 0, f"storage.chunk_bytes={chunk}", f"a multiple of lba_bytes={lba}")
        depth = f"1 to {MOST_QUEUE_DEPTH}"
        require(1 <= self.queue_depth <= MOST_QUEUE_DEPTH, f"storage.queue_depth={self.queue_depth}", depth)
        require(self.first_lba >= 0, f"storage.first_lba={self.first_lba}", "0 or more")
        last = self.first_lba if self.last_lba is None else self.last_lba
        require(last >= self.first_lba, f"storage.last_lba={last}", f"first_lba={self.first_lba} or more")
        require(
            not self.iopoll or self.backend == "nvme", "storage.iopoll=true", "it with storage.backend=nvme, or false"
        )
        require(self.timeout_s > 0, f"storage.timeout_s={self.timeout_s}", "more than 0 seconds")
