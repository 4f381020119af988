"""The read rate of a storage, by which a link's speed can be set: measured by fio, or stated for a paced storage."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dualblade.config.run import RunConfig
from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError
from dualblade.units import MIB
from experiments.io_paths import io_target
from experiments.io_paths.io_target import IoTarget
from experiments.machine import huge_pages
from experiments.machine.journal import Journal
from experiments.machine.scratch import scratch_folder
from experiments.points.io_point import IoPath
from experiments.processes import fio

SIZE_BYTES = 256 * MIB
RUNTIME_S = 3.0
TIMEOUT_S = 60.0
PATH_OF: Mapping[str, IoPath] = {"file": "ext4_direct", "nvme": "io_uring_cmd"}  # the direct path's own, by backend


@dataclass(frozen=True)
class StorageRate:
    """Read rate in GB/s (10^9 bytes); `source` is fio's version or the paced storage's name, `command` fio's."""

    read_gb_per_s: float
    source: str
    command: str | None = None


@dataclass
class StorageRates:
    """Read rates of the storages of one session; each is measured before its first run."""

    known: dict[tuple[StorageConfig, int], StorageRate] = field(default_factory=dict)

    def wanted_by(self, run: RunConfig, journal: Journal) -> StorageRate | None:
        """Measured storage read rate for a link set by storage_ratio; None if it is not needed.

        Raises:
            ConfigurationError: it cannot be measured on this storage.
            MachineError, RunError: there is no fio, or it failed.
        """
        pace = run.device.pace
        if pace is None or pace.storage_ratio is None or pace.storage_gb_per_s is not None:
            return None
        if run.storage.pace is not None:
            return StorageRate(run.storage.pace.read_gb_per_s, f"stated: {run.storage.pace.name}")
        key = run.storage, run.device.copy_threads
        if key not in self.known:
            self.known[key] = measure(*key, journal)
        return self.known[key]


def measure(storage: StorageConfig, threads: int, journal: Journal) -> StorageRate:
    """fio reads as the direct path does: `threads` jobs, each in a part of its own, with its chunk size and depth.

    Raises:
        ConfigurationError: the storage's backend has no blocks that can be written for it.
        MachineError, RunError: there is no fio, or it failed.
    """
    if storage.backend not in PATH_OF:
        raise ConfigurationError(
            f"device.pace.storage_ratio is measured on storage.backend={' or '.join(PATH_OF)}, and this one is "
            f"{storage.backend}; measure its read rate yourself and set device.pace.storage_gb_per_s"
        )
    version = fio.version()
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(Path(storage.directory), SIZE_BYTES, journal))
        opened = io_target.opened(PATH_OF[storage.backend], storage, SIZE_BYTES, scratch, journal)
        target = stack.enter_context(opened)
        io_target.fill(target, SIZE_BYTES)
        request_bytes = min(storage.chunk_bytes, target.most_request_bytes or storage.chunk_bytes)
        buffers_bytes = threads * (storage.queue_depth * request_bytes + 2 * huge_pages.HUGE_PAGE_BYTES)
        huge = stack.enter_context(huge_pages.reserved(buffers_bytes, journal))
        options = reading(target, request_bytes, storage.queue_depth, threads, huge=huge)
        job = fio.run(options, TIMEOUT_S)
    return StorageRate(job["read"]["bw_bytes"] / 1e9, version, shlex.join(fio.command(options)))


def reading(target: IoTarget, request_bytes: int, depth: int, threads: int, *, huge: bool) -> list[str]:
    """fio's options: tensors are read from end to end, so reads are sequential."""
    part_bytes = SIZE_BYTES // threads // request_bytes * request_bytes
    return [
        *target.job,
        f"--offset_increment={part_bytes}",
        f"--size={part_bytes}",
        f"--numjobs={threads}",
        "--rw=read",
        f"--bs={request_bytes}",
        f"--iodepth={depth}",
        "--time_based",
        f"--runtime={round(RUNTIME_S * 1000)}ms",
        *(["--iomem=mmaphuge", f"--hugepage-size={huge_pages.HUGE_PAGE_BYTES}"] if huge else []),
        "--invalidate=0",
        "--fallocate=none",
        "--thread",
    ]
