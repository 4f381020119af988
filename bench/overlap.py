"""overlap_full beside the physical limit: no schedule reads and copies a layer faster than the slower of the two can.

Once with the storage held to a stated rate and the link to 2.3 times that (the paper's SSD A and link), so that the
limit is known. And on this machine's disk, whose rate fio measures before and after each run, at several ratios.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from analysis.metrics.overlap_model import limit_s
from bench.comparison import Comparison, Pair
from bench.session import Bench
from experiments.machine import storage_rate
from experiments.points.point import Point
from experiments.points.sweep import compose_points

STORAGE_GB_PER_S = 2.0
LINK_RATIO = 2.3
LINK_GB_PER_S = LINK_RATIO * STORAGE_GB_PER_S
DISK_RATIOS = (0.5, 1.0, LINK_RATIO)
ITERATIONS = 5
SHARED = (
    *("variant=nvme_direct_only", "variant.pipeline=overlap_full", "memory_gb=null"),
    f"decode_iterations={ITERATIONS}",
)


def measure(pairs: int, bench: Bench, report: Callable[[str], None]) -> dict[str, Any]:
    """`pairs` runs of each kind, each beside the limit for the bytes that it read."""

    def repeat(name: str, what: str, pair: Callable[[], Pair]) -> Comparison:
        measured = []
        for number in range(1, pairs + 1):
            measured.append(pair())
            report(f"{name} {number}/{pairs}: ours {measured[-1].ours:.3f} s, limit {measured[-1].theirs:.3f} s")
        return Comparison(f"{name}/limit", what, "s", "lower", measured)

    step = "time of a decode step without compute, beside max(2b/S, 2b/D) for all layers"
    stated = f"storage paced to {STORAGE_GB_PER_S:g} GB/s and link to {LINK_GB_PER_S:g} GB/s (both emulated)"
    comparisons = [repeat("overlap_full", f"{step}; {stated}", lambda: _paced(bench))]
    for ratio in DISK_RATIOS:
        measured = f"S by fio on this disk before and after, link paced to {ratio:g} times the former (emulated)"
        comparisons.append(
            repeat(f"overlap_full_disk_{ratio:g}", f"{step}; {measured}", lambda r=ratio: _on_disk(r, bench))
        )
    return {"comparisons": comparisons, "packages": []}


def _paced(bench: Bench) -> Pair:
    rates = [f"storage.pace.{name}={STORAGE_GB_PER_S}" for name in ("read_gb_per_s", "write_gb_per_s")]
    point = _point("storage=paced", "device=paced", *rates, f"device.pace.gb_per_s={LINK_GB_PER_S}")
    return _pair(bench.run(point), STORAGE_GB_PER_S, LINK_GB_PER_S)


def _on_disk(ratio: float, bench: Bench) -> Pair:
    """S is the mean of the rates before and after the run, since a disk that is shared does not keep one."""
    link = ("device=paced_ratio", f"device.pace.storage_ratio={ratio}", f"storage.directory={bench.folder}")
    before = _disk_gb_per_s(_point(*link), bench)
    result = bench.run(_point(*link, f"device.pace.storage_gb_per_s={before}"))
    after = _disk_gb_per_s(_point(*link), bench)
    return _pair(result, statistics.mean((before, after)), ratio * before)


def _disk_gb_per_s(point: Point, bench: Bench) -> float:
    return storage_rate.measure(point.run.storage, point.run.device.copy_threads, bench.journal).read_gb_per_s


def _pair(result: dict[str, Any], storage_gb_per_s: float, link_gb_per_s: float) -> Pair:
    """The median of the warm decode steps, and the limit for their bytes."""
    tensor_bytes = result["bytes"]["decode"]["asked_read"] / ITERATIONS / (2 * result["plan"]["n_layers"])
    layer_s = limit_s(tensor_bytes, storage_gb_per_s * 1e9, link_gb_per_s * 1e9)
    return Pair(statistics.median(result["decode_s"][1:]), result["plan"]["n_layers"] * layer_s)


def _point(*overrides: str) -> Point:
    (config,) = compose_points([*SHARED, *overrides])
    return Point.from_config(config)
