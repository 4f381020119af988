"""Results of which it is plain what every claim's verdict has to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analysis.claims.judges import JUDGES
from analysis.claims.verdict import Judgement, judge, read_claims
from analysis.selection import setups
from tests.support.analysis_results import VARIANTS, WORKING_SET_BYTES, write_run

LIMITS_GB = (2.0, 4.0, 6.0, 8.0, 11.0)
KV_GB = 1.0 + WORKING_SET_BYTES * 8 / 1e9

SETUP = "local, disk synthetic disk, storage=file, device=host, Linux 6.0"

CLAIMS = {claim.id: claim for claim in read_claims()}
Curve = Callable[[float], Mapping[str, Any]]


def write(results_dir: Path, curves: Mapping[str, Curve], repetitions: int = 3, **overrides: Any) -> None:
    """Runs of some variants over the limits, each repetition 1 % slower than the one before."""
    for variant, curve in curves.items():
        for limit_gb in LIMITS_GB:
            for turn in range(repetitions):
                write_run(results_dir, variant, limit_gb, turn, result=slowed(curve(limit_gb), turn), **overrides)


def slowed(fields: Mapping[str, Any], turn: int) -> dict[str, Any]:
    latencies = {name: value * (1 + 0.01 * turn) for name, value in fields.items() if name == "prefill_s"}
    decode_s = {name: [value * (1 + 0.01 * turn)] * 8 for name, value in fields.items() if name == "decode_s"}
    return {**fields, **latencies, **decode_s}


def verdict_of(claim: str, results_dir: Path) -> Judgement:
    return judge(CLAIMS[claim], JUDGES, setups.gather(results_dir).setups, "python -m experiments.run")


def constant(**fields: Any) -> Curve:
    return lambda limit_gb: fields


def prefill(**seconds: float) -> dict[str, Curve]:
    return {variant: constant(prefill_s=value) for variant, value in seconds.items()}


def decode(**seconds: float | Callable[[float], float]) -> dict[str, Curve]:
    def curve(value: float | Callable[[float], float]) -> Curve:
        return lambda limit_gb: {"prefill_s": 1.0, "decode_s": value(limit_gb) if callable(value) else value}

    return {variant: curve(value) for variant, value in seconds.items()}


def hits(**rates: Callable[[float], float]) -> dict[str, Curve]:
    def curve(rate: Callable[[float], float]) -> Curve:
        return lambda limit_gb: {"hit_rate.decode": rate(limit_gb)}

    return {variant: curve(rate) for variant, rate in rates.items()}


def ideal(limit_gb: float) -> float:
    return min(1.0, (limit_gb - 1.0) / (KV_GB - 1.0))


CASES: dict[str, tuple[str, dict[str, Curve], str]] = {
    "C1 by the published share": ("C1", prefill(baseline=2.0, dual_blade=1.4), "reproduced"),
    "C1 by less": ("C1", prefill(baseline=2.0, dual_blade=1.8), "direction only"),
    "C1 slower": ("C1", prefill(baseline=2.0, dual_blade=2.2), "contradicted"),
    "C1 one lucky limit": (
        "C1",
        {
            "baseline": constant(prefill_s=2.0),
            "dual_blade": lambda limit_gb: {"prefill_s": 1.0 if limit_gb == 4 else 2.1},
        },
        "contradicted",
    ),
    "C2 everywhere": ("C2", decode(baseline=1.0, dual_blade=lambda gb: 0.5 if gb < 9 else 0.9), "reproduced"),
    "C2 slower only with ample memory": (
        "C2",
        decode(baseline=1.0, dual_blade=lambda gb: 0.5 if gb < KV_GB else 1.2),
        "direction only",
    ),
    "C2 slower where it counts": (
        "C2",
        decode(baseline=1.0, dual_blade=lambda gb: 1.2 if gb < 5 else 0.5),
        "contradicted",
    ),
    "C4 cliff": ("C4", hits(baseline=lambda gb: 0.004 if gb < 9 else 1.0), "reproduced"),
    "C4 steep": ("C4", hits(baseline=lambda gb: 0.05 if gb < 9 else 1.0), "direction only"),
    "C4 high below and low above": ("C4", hits(baseline=lambda gb: 0.5 if gb < 7 else 0.1), "contradicted"),
    "C4 gentle": ("C4", hits(baseline=ideal), "contradicted"),
    "C5 stalls": ("C5", {"baseline": lambda gb: {"prefill_s": 1 + max(0.0, 6 - gb)}}, "reproduced"),
    "C5 faster": ("C5", {"baseline": lambda gb: {"prefill_s": 1 - 0.1 * max(0.0, 6 - gb)}}, "contradicted"),
    "C6 linear": ("C6", decode(cachepolicy_only=lambda gb: 2 - 0.1 * gb), "reproduced"),
    "C6 rising": ("C6", decode(cachepolicy_only=lambda gb: 1 + 0.1 * gb), "contradicted"),
    "C7 flat and last": ("C7", decode(**dict.fromkeys(VARIANTS, 0.4) | {"nvme_direct_only": 0.5}), "reproduced"),
    "C7 flat and first": ("C7", decode(**dict.fromkeys(VARIANTS, 0.4) | {"nvme_direct_only": 0.3}), "direction only"),
    "C7 falling": (
        "C7",
        decode(**dict.fromkeys(VARIANTS, 0.4) | {"nvme_direct_only": lambda gb: 2 - 0.15 * gb}),
        "contradicted",
    ),
    "C8 everywhere": ("C8", decode(**dict.fromkeys(VARIANTS, 0.5) | {"dual_blade": 0.4}), "reproduced"),
    "C8 tied": ("C8", decode(**dict.fromkeys(VARIANTS, 0.5) | {"dual_blade": 0.52}), "reproduced"),
    "C8 but once": (
        "C8",
        decode(**dict.fromkeys(VARIANTS, 0.5) | {"dual_blade": lambda gb: 0.4 if gb > 2 else 0.6}),
        "direction only",
    ),
    "C8 never": ("C8", decode(**dict.fromkeys(VARIANTS, 0.5) | {"dual_blade": 0.6}), "contradicted"),
    "C9 linear and above": (
        "C9",
        hits(dual_blade=ideal, cachepolicy_only=lambda gb: 0.9 * ideal(gb)),
        "reproduced",
    ),
    "C9 linear and below": (
        "C9",
        hits(dual_blade=ideal, cachepolicy_only=lambda gb: min(1.0, 1.2 * ideal(gb))),
        "direction only",
    ),
    "C9 linear and equal": ("C9", hits(dual_blade=ideal, cachepolicy_only=ideal), "direction only"),
    "C9 cliff": (
        "C9",
        hits(dual_blade=lambda gb: float(gb > 7), cachepolicy_only=lambda gb: 0.0),
        "contradicted",
    ),
}
