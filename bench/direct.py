"""The direct path beside fio: the same file, chunk, depth and kind of buffer, in turn.

Two things are held against fio's sequential rate: the bare transfer of whole tensors by one thread, and the full decode
loop of a replay without compute, with its copies over the link and its appends (pipeline overlap_full).
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import fio
from bench.comparison import Comparison, Pair
from bench.session import Bench
from bench.transfer import DirectTransfer
from dualblade.paths.ring import Op
from experiments.machine import huge_pages
from experiments.machine.scratch import scratch_folder
from experiments.points.point import Point
from experiments.points.sweep import compose_points

ITERATIONS = 6
PASSES = 3  # over the working set, so that a transfer takes about a second


def measure(pairs: int, bench: Bench, report: Callable[[str], None]) -> dict[str, Any]:
    """Measure `pairs` rounds of write, read and decode loop, each beside fio."""
    fio_version = fio.version()
    point = _point()
    storage, threads = point.run.storage, point.run.device.copy_threads
    with (
        scratch_folder(bench.folder, 2 * point.working_set_bytes, bench.journal) as scratch,
        DirectTransfer(point.run, scratch) as transfer,
    ):
        one = fio.Load(transfer.size_bytes, storage.chunk_bytes, jobs=1, depth=storage.queue_depth, passes=PASSES)
        many = dataclasses.replace(one, jobs=threads)
        with huge_pages.reserved(max(one.buffer_bytes, many.buffer_bytes), bench.journal) as granted:
            rounds = []
            for number in range(1, pairs + 1):
                rounds.append(_round(point, transfer, one, many, granted, bench))
                report(f"pair {number}/{pairs}, GB/s: {rounds[-1]}")
        buffers = {"ours_huge_page_bytes": transfer.buffers.huge_page_bytes, "fio": "mmaphuge" if granted else "malloc"}
    return {"comparisons": _comparisons(rounds, one, many), "buffers": buffers, "packages": [fio_version]}


@dataclass(frozen=True)
class _Round:
    """Rates of one turn of everything, GB/s."""

    write: float
    fio_write: float
    read: float
    fio_read: float
    fio_read_many: float
    loop: float

    def __str__(self) -> str:
        return (
            f"write {self.write:.2f}, fio {self.fio_write:.2f}; read {self.read:.2f}, fio {self.fio_read:.2f} "
            f"and by all jobs {self.fio_read_many:.2f}; decode loop {self.loop:.2f}"
        )


def _round(
    point: Point, transfer: DirectTransfer, one: fio.Load, many: fio.Load, granted: bool, bench: Bench
) -> _Round:
    def theirs(load: fio.Load, op: Op) -> float:
        return fio.rate_gb_per_s(load, op, transfer.file, huge_pages=granted)

    return _Round(
        write=transfer.rate_gb_per_s("write", PASSES),
        fio_write=theirs(one, "write"),
        read=transfer.rate_gb_per_s("read", PASSES),
        fio_read=theirs(one, "read"),
        loop=_loop_gb_per_s(bench.run(point)),
        fio_read_many=theirs(many, "read"),
    )


def _loop_gb_per_s(result: dict[str, Any]) -> float:
    """KV bytes read over the time of all decode iterations, appends included in the time."""
    return float(result["bytes"]["decode"]["asked_read"] / sum(result["decode_s"]) / 1e9)


def _point() -> Point:
    shared = ["variant=nvme_direct_only", "device=host_no_compute", "variant.pipeline=overlap_full", "memory_gb=null"]
    (config,) = compose_points([*shared, f"decode_iterations={ITERATIONS}"])
    return Point.from_config(config)


def _comparisons(rounds: list[_Round], one: fio.Load, many: fio.Load) -> list[Comparison]:
    """The loop is held against the fio that was faster: one job, or as many as there are copy threads."""
    _, rival = max(
        (statistics.median(r.fio_read for r in rounds), "fio_read"),
        (statistics.median(r.fio_read_many for r in rounds), "fio_read_many"),
    )
    load = one if rival == "fio_read" else many
    bare = f"whole tensors by one thread, beside {one}"
    loop = f"decode loop of a replay without compute, reads running ahead of the link, beside {load}"
    return [
        _comparison("direct_write/fio", bare, [Pair(r.write, r.fio_write) for r in rounds]),
        _comparison("direct_read/fio", bare, [Pair(r.read, r.fio_read) for r in rounds]),
        _comparison("direct_read_loop/fio", loop, [Pair(r.loop, getattr(r, rival)) for r in rounds]),
    ]


def _comparison(name: str, what: str, pairs: list[Pair]) -> Comparison:
    return Comparison(name, what, "GB/s", "higher", pairs)
