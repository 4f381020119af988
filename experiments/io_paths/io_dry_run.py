"""The planned writes of an I/O path's measurement, found without writing anything."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dualblade.config.storage import StorageConfig
from dualblade.run.planned_writes import raw_writes
from dualblade.targets.block import BlockTarget
from dualblade.targets.claim import BlockClaim
from dualblade.units import KIB, MIB
from experiments.io_paths.io_target import FILE, IoTarget, kind, on_device, on_file, on_loop, on_namespace
from experiments.points.io_point import IoPath, IoPoint
from experiments.processes import fio

DEVICES = ("block", "nvme")


def describe(point: IoPoint) -> Iterator[str]:
    """Return the lines of a dry run for a point of this machine.

    Raises:
        StorageError, ConfigurationError, MachineError: it would be refused, and why.
    """
    io, storage = point.io, point.storage
    target = planned(io.path, storage, io.size_bytes)
    n_cells, how = len(target.cells(io)), "once from end to end" + (" and then in random order" * (io.op == "write"))
    yield f"{point.label}: {n_cells} cells of random {io.op}s by {fio.version()} on {target.what}"
    if kind(io.path, storage) in DEVICES:
        yield from raw_writes(storage, io.size_bytes, max(MIB, *(size * KIB for size in io.block_kib)), how)
    else:
        yield f"  would write: a file of {io.size_bytes:,} bytes in {storage.directory}, {how}, removed at the end"


def planned(path: IoPath, storage: StorageConfig, size_bytes: int) -> IoTarget:
    """Return the target that `io_target.opened` would open, after the same checks."""
    match kind(path, storage):
        case "file":
            return on_file(path, Path(storage.directory) / FILE)
        case "loop":
            return on_loop(Path(storage.directory) / FILE)
        case "block":
            device = BlockTarget(storage, size_bytes)
            device.release()
            return on_device(device)
        case "nvme":
            with contextlib.closing(BlockClaim(storage)) as claim:
                return on_namespace(path, claim, claim.first_blocks(size_bytes))
