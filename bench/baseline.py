"""Our Baseline beside FlexLLMGen: same shapes, same budgets, same cgroup handling, run in turn."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from bench import peer_package
from bench.comparison import Comparison, Pair
from bench.session import Bench
from experiments.points.point import Point
from experiments.points.sweep import compose_points
from experiments.processes.engine import execute

PEER = "bench.flexllmgen"

# Budget over working set, on both sides of the cliff but away from it: the processes hold their own memory differently
# and the cliff is a few per cent wide. With 1.3 both find everything in memory.
RATIOS = (0.4, 0.6, 0.8, 1.3)
ITERATIONS = 5


def measure(pairs: int, bench: Bench, report: Callable[[str], None]) -> dict[str, Any]:
    """Measure every budget in every round, ours and theirs in turn."""
    peer = functools.partial(execute, module=PEER, folders=[peer_package.installed()])
    points = _points()
    runs: list[tuple[str, _Run, _Run]] = []
    for number in range(1, pairs + 1):
        for ratio, point in points.items():
            case = f"budget {ratio:g} of the working set"
            runs.append((case, _Run(bench.run(point)), _Run(bench.run(point, peer))))
            report(f"pair {number}/{pairs}, {case}: ours {runs[-1][1]}; FlexLLMGen {runs[-1][2]}")
    return {"comparisons": _comparisons(runs), "hit_rates": _hit_rates(runs), "packages": peer_package.REQUIREMENTS}


class _Run:
    """The compared numbers of a run; the first decode iteration is cold and left out."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        self.prefill_s = float(result["prefill_s"])
        self.decode_s = statistics.median(result["decode_s"][1:])
        self.hit_rate = statistics.mean(result["hit_rate"]["decode_per_iteration"][1:])

    def __str__(self) -> str:
        return f"prefill {self.prefill_s:.2f} s, decode {self.decode_s:.3f} s, hit rate {self.hit_rate:.1%}"


def _points() -> dict[float, Point]:
    shared = ["variant=baseline", "device=host_no_compute", f"decode_iterations={ITERATIONS}"]
    configs = compose_points([*shared, f"budget_ratio={','.join(map(str, RATIOS))}"])
    return {config["budget_ratio"]: Point.from_config(config) for config in configs}


def _comparisons(runs: list[tuple[str, _Run, _Run]]) -> list[Comparison]:
    return [
        Comparison(
            f"baseline_{phase}/flexllmgen",
            what,
            "s",
            "lower",
            [Pair(getattr(ours, f"{phase}_s"), getattr(theirs, f"{phase}_s"), case) for case, ours, theirs in runs],
        )
        for phase, what in (
            ("prefill", "time to store the whole prompt"),
            ("decode", "time of a decode step without compute, median of the warm ones of a run"),
        )
    ]


def _hit_rates(runs: list[tuple[str, _Run, _Run]]) -> dict[str, dict[str, float]]:
    """Medians by budget, and the largest distance within a pair."""
    by_case: dict[str, list[tuple[float, float]]] = {}
    for case, ours, theirs in runs:
        by_case.setdefault(case, []).append((ours.hit_rate, theirs.hit_rate))
    return {
        case: {
            "ours": statistics.median(ours for ours, _ in rates),
            "theirs": statistics.median(theirs for _, theirs in rates),
            "largest_difference": max(abs(ours - theirs) for ours, theirs in rates),
        }
        for case, rates in by_case.items()
    }
