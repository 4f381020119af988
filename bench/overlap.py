"""overlap_full beside the physical limit: no schedule reads and copies a layer faster than the slower of the two can.

The storage is held to a stated rate and the link to 2.3 times that (the paper's SSD A and link), so the limit is known:
all KV read in a decode iteration over the storage's rate.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from analysis.overlap_model import limit_s
from bench import trial
from bench.comparison import Comparison, Pair
from experiments.point import Point
from experiments.sweep import compose_points

STORAGE_GB_PER_S = 2.0
LINK_GB_PER_S = 2.3 * STORAGE_GB_PER_S
ITERATIONS = 5


def measure(pairs: int, bench: trial.Bench, report: Callable[[str], None]) -> dict[str, Any]:
    """`pairs` runs, each beside the limit for the bytes that it read."""
    point, measured = _point(), []
    for number in range(1, pairs + 1):
        measured.append(_pair(trial.run(point, trial.ENGINE, bench)))
        report(f"pair {number}/{pairs}: ours {measured[-1].ours:.3f} s, limit {measured[-1].theirs:.3f} s")
    what = (
        f"time of a decode step without compute, storage paced to {STORAGE_GB_PER_S:g} GB/s and link to "
        f"{LINK_GB_PER_S:g} GB/s (both emulated), beside max(2b/S, 2b/D) for all layers"
    )
    return {"comparisons": [Comparison("overlap_full/limit", what, "s", "lower", measured)], "packages": []}


def _pair(result: dict[str, Any]) -> Pair:
    """The median of the warm decode steps, and the limit for their bytes."""
    tensor_bytes = result["bytes"]["decode"]["asked_read"] / ITERATIONS / (2 * result["plan"]["n_layers"])
    layer_s = limit_s(tensor_bytes, STORAGE_GB_PER_S * 1e9, LINK_GB_PER_S * 1e9)
    return Pair(statistics.median(result["decode_s"][1:]), result["plan"]["n_layers"] * layer_s)


def _point() -> Point:
    shared = ["variant=nvme_direct_only", "variant.pipeline=overlap_full", "memory_gb=null"]
    paces = [f"storage.pace.{name}={STORAGE_GB_PER_S}" for name in ("read_gb_per_s", "write_gb_per_s")] + [
        f"device.pace.gb_per_s={LINK_GB_PER_S}"
    ]
    (config,) = compose_points([*shared, "storage=paced", "device=paced", *paces, f"decode_iterations={ITERATIONS}"])
    return Point.from_config(config)
