"""Claims: every one of the paper's has a verdict, and each verdict follows from what the files hold."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis import evidence
from analysis.claims import Claim, Judgement, Verdict, fewest_repetitions, judge, read_claims, to_json
from analysis.figures.__main__ import FIGURES
from analysis.judges import JUDGES
from tests.unit.analysis_results import VARIANTS, WORKING_SET_BYTES, io_cell, write_io, write_run

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
    return judge(CLAIMS[claim], JUDGES, evidence.gather(results_dir).setups, "python -m experiments.run")


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


@pytest.mark.parametrize("case", CASES)
def test_a_verdict_follows_from_the_files(tmp_path: Path, case: str) -> None:
    claim, curves, verdict = CASES[case]
    write(tmp_path, curves)
    judgement = verdict_of(claim, tmp_path)
    assert judgement.verdict == verdict, judgement.finding
    assert judgement.finding.testbed == SETUP
    decided = {name.split("/")[1].rpartition("-")[0] for name in judgement.finding.runs}
    assert decided <= set(curves) and len(judgement.finding.runs) >= 3


def test_measured_is_the_median_of_pairs_with_its_interval(tmp_path: Path) -> None:
    for turn, (reference_s, own_s) in enumerate([(2.0, 1.0), (4.0, 2.4), (1.0, 0.7)]):
        for limit_gb in LIMITS_GB:
            write_run(tmp_path, "baseline", limit_gb, turn, result={"decode_s": [reference_s] * 8})
            write_run(tmp_path, "dual_blade", limit_gb, turn, result={"decode_s": [own_s] * 8})
    finding = verdict_of("C2", tmp_path).finding
    assert finding.measured == pytest.approx(-40)
    assert finding.interval == pytest.approx((-50, -30))
    assert "3 repetitions" in finding.reason


@pytest.mark.parametrize("turn", [0, 1])
def test_noise_excuses_no_limit_at_which_another_variant_is_faster(tmp_path: Path, turn: int) -> None:
    """One of three repetitions far better than the others, so that the interval reaches below zero."""
    for variant, limit_gb, repetition in itertools.product(VARIANTS, LIMITS_GB, range(3)):
        own_s = 0.2 if repetition == turn else 0.7
        result = {"decode_s": [own_s if variant == "dual_blade" else 0.5] * 8, "prefill_s": 1.0}
        write_run(tmp_path, variant, limit_gb, repetition, result=result)
    finding = verdict_of("C8", tmp_path).finding
    assert finding.verdict is Verdict.CONTRADICTED
    assert finding.text == "prefill at 0 of 5 limits, tied at 5; decode at 0 of 5 limits, tied at 0"


def write_pinned(results_dir: Path, threads: int = 2, locked: bool = True, probing: int = 1, turns: int = 2) -> None:
    """Runs of two buffers of 1 MB, one tensor each, that took `probing` iterations to choose Overlap-Cross; 0: none."""
    names = ["intra"] * (1 + probing) + ["cross"] * 3
    steps = [{"iteration": number, "strategy": name} for number, name in enumerate(names, 1)]
    groups = {"direct": {"choice": "cross", "iterations": steps}} if probing else {}
    result = {
        "pinned": {"bytes": 2 * 10**6, "locked": locked},
        "plan.kpu_bytes": 2 * 10**6,
        "pipeline": {"groups": groups},
    }
    for turn in range(turns):
        write_run(results_dir, "dual_blade", repetition=turn, result=result, config={"device.copy_threads": threads})


@pytest.mark.parametrize(
    ("written", "verdict", "said"),
    [
        ({}, "reproduced", "2 repetitions."),
        ({"threads": 1}, "direction only", "2 repetitions."),
        ({"probing": 2}, "direction only", "2 repetitions."),
        ({"probing": 0}, "direction only", "No run chose a pipeline"),
        ({"turns": 1}, "direction only", "One repetition: direction only."),
        ({"locked": False}, "not testable here", "the kernel locked"),
    ],
    ids=str,
)
def test_fixed_cost_is_locked_memory_and_one_probing_iteration(
    tmp_path: Path, written: dict[str, Any], verdict: str, said: str
) -> None:
    write_pinned(tmp_path, **written)
    finding = verdict_of("C22", tmp_path).finding
    assert finding.verdict == verdict and said in finding.reason


def io_result(p50_us: float, device_gb_per_s: float = 1000.0, outlier_us: float = 0.0) -> dict[str, Any]:
    """Requests that take a path `p50_us` each, or as long as the device takes for all that are in flight.

    A few of them make the mean longer by `outlier_us`.
    """
    cells = []
    for request_bytes, depth in itertools.product((4 << 10, 256 << 10), (1, 16)):
        in_flight_bytes = request_bytes * depth
        latency_us = max(p50_us, in_flight_bytes / device_gb_per_s / 1e3)
        latencies = {"latency_us": {"mean": latency_us + outlier_us, "p50": latency_us}}
        rate = {"bytes_per_s": in_flight_bytes / latency_us * 1e6}
        cells.append({**io_cell(request_bytes, depth), **latencies, **rate})
    return {"cells": cells}


@pytest.mark.parametrize(
    ("paths", "verdict"),
    [
        ({"io_uring_cmd": 20, "ext4_buffered": 40, "spdk": 19}, "reproduced"),
        ({"io_uring_cmd": 20, "ext4_buffered": 40}, "direction only"),
        ({"io_uring_cmd": 20, "ext4_buffered": 40, "spdk": 10}, "direction only"),
        ({"io_uring_cmd": 50, "ext4_buffered": 40, "spdk": 50}, "contradicted"),
        ({"ext4_direct": 20, "ext4_buffered": 40}, "not testable here"),
    ],
)
def test_io_paths_are_compared_cell_by_cell(tmp_path: Path, paths: Mapping[str, float], verdict: str) -> None:
    for (path, p50_us), turn in itertools.product(paths.items(), range(2)):
        write_io(tmp_path, path, turn, result=io_result(p50_us, outlier_us=100 if path == "io_uring_cmd" else 0))
    judgement = verdict_of("C20", tmp_path)
    assert judgement.verdict == verdict
    if "io_uring_cmd" in paths:
        assert judgement.finding.measured == pytest.approx(paths["io_uring_cmd"] / 40)
        assert len(judgement.finding.runs) == 2 * len(paths)
        assert "2 repetitions" in judgement.finding.reason
        assert ("SPDK was not measured" in judgement.finding.reason) == ("spdk" not in paths)


@pytest.mark.parametrize(("device_gb_per_s", "verdict"), [(0.05, "direction only"), (0.00005, "not testable here")])
def test_io_paths_are_not_compared_where_the_device_is_the_limit(
    tmp_path: Path, device_gb_per_s: float, verdict: str
) -> None:
    """By hand, at 50 MB/s: 256 KiB take 5 ms and 16 of 4 KiB 1.3 ms on any path, one of 4 KiB what its path takes."""
    for path, p50_us in {"io_uring_cmd": 100, "ext4_buffered": 400}.items():
        write_io(tmp_path, path, result=io_result(p50_us, device_gb_per_s))
    judgement = verdict_of("C20", tmp_path)
    assert judgement.verdict == verdict
    if verdict == "direction only":
        assert judgement.finding.measured == pytest.approx(0.25)


@pytest.mark.parametrize(
    "other",
    [
        {"emulated_ssd": {"read_mb_per_s": 200}},
        {"io": {"path": "ext4_buffered", "op": "read", "size_mib": 64, "runtime_s": 0.5}},
        {"io": {"path": "ext4_buffered", "op": "read", "size_mib": 128, "runtime_s": 1.0}},
    ],
    ids=str,
)
def test_io_paths_at_other_settings_are_not_compared(tmp_path: Path, other: dict[str, Any]) -> None:
    io = {"path": "io_uring_cmd", "op": "read", "size_mib": 64, "runtime_s": 1.0}
    write_io(tmp_path, "io_uring_cmd", config={"io": io, "emulated_ssd": {"read_mb_per_s": 100}})
    same = {"io": {**io, "path": "ext4_buffered"}, "emulated_ssd": {"read_mb_per_s": 100}}
    write_io(tmp_path, "ext4_buffered", config=same | other)
    finding = verdict_of("C20", tmp_path).finding
    assert finding.verdict is Verdict.NOT_TESTABLE and "at equal settings" in finding.reason


def stalled(decode_low: float, decode_high: float) -> Curve:
    def fields(limit_gb: float) -> Mapping[str, Any]:
        decode_s = decode_low if limit_gb < KV_GB else decode_high
        return {
            "phases": {
                "decode": {"storage_stall_s": decode_s, "wall_s": 1.0},
                "prefill": {"storage_stall_s": 0.25, "wall_s": 1.0},
            }
        }

    return fields


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.68, 0.5, "reproduced"), (0.95, 0.5, "direction only"), (0.4, 0.5, "contradicted")],
)
def test_share_of_disk_time_is_read_from_the_phases(tmp_path: Path, low: float, high: float, verdict: str) -> None:
    write(tmp_path, {"baseline": stalled(low, high)})
    judgement = verdict_of("C10", tmp_path)
    assert judgement.verdict == verdict
    assert judgement.finding.measured == pytest.approx(100 * low)


def test_share_of_disk_time_takes_the_papers_limits(tmp_path: Path) -> None:
    for limit_gb in (4.0, 11.0):
        write_run(tmp_path, "baseline", limit_gb, result=dict(stalled(0.68, 0.5)(limit_gb)))
    assert "Baseline runs at 2 GB (M-Low) and 11 GB (M-High)" in verdict_of("C10", tmp_path).finding.reason


@pytest.mark.parametrize(("own_s", "verdict"), [(0.9, "reproduced"), (0.99, "direction only"), (1.1, "contradicted")])
def test_adaptive_pipeline_is_held_against_intra_all_else_equal(tmp_path: Path, own_s: float, verdict: str) -> None:
    for pipeline, seconds in (("adaptive", own_s), ("intra", 1.0), ("none", 5.0)):
        config = {"variant.pipeline": pipeline, "device.link": "cuda"}
        curves = decode(dual_blade=seconds)
        write(tmp_path, curves, config=config, experiment=pipeline)
    judgement = verdict_of("C17", tmp_path)
    assert judgement.verdict == verdict
    assert judgement.finding.measured == pytest.approx(100 * (own_s - 1))
    assert "5 DRAM:SSD ratios" in judgement.finding.text


def test_a_copy_in_host_memory_is_no_link(tmp_path: Path) -> None:
    write_run(tmp_path, "dual_blade", config={"variant.pipeline": "adaptive", "device.link": "host"})
    for claim in ("C17", "C18"):
        assert "no link to overlap" in verdict_of(claim, tmp_path).finding.reason


def test_results_from_before_the_pipeline_are_no_obstacle(tmp_path: Path) -> None:
    write_run(tmp_path, "dual_blade", config={"device.link": "cuda"})
    assert verdict_of("C17", tmp_path).verdict is Verdict.NOT_TESTABLE


def test_ratios_without_a_limit_pair_up_by_the_variants_other_settings(tmp_path: Path) -> None:
    for knob in ("0%", "50%"):
        for pipeline, seconds in (("adaptive", 0.9), ("intra", 1.0)):
            for turn in range(2):
                config = {"variant.pipeline": pipeline, "variant.knob": knob, "device.link": "cuda"}
                result = slowed({"decode_s": seconds}, turn)
                write_run(tmp_path, "dual_blade", None, turn, f"{pipeline}{knob}", config, result=result)
    finding = verdict_of("C17", tmp_path).finding
    assert finding.measured == pytest.approx(-10) and "2 DRAM:SSD ratios" in finding.text and len(finding.runs) == 8


def test_a_pair_on_links_of_different_rates_decides_nothing(tmp_path: Path) -> None:
    """Three repetitions at 1 GB/s, and after a pause a fourth whose link is twice as fast."""
    for turn, (pipeline, seconds) in itertools.product(range(4), (("adaptive", 0.9), ("intra", 1.0))):
        link = {"kind": "paced", "gb_per_s": 2.0 if turn == 3 else 1.0 + 0.01 * turn}
        config = {"variant.pipeline": pipeline, "device.link": "paced"}
        result = {"link": link, "decode_s": [seconds / link["gb_per_s"]] * 8}
        write_run(tmp_path, "dual_blade", None, turn, pipeline, config, result=result)
    finding = verdict_of("C17", tmp_path).finding
    assert len(finding.runs) == 6 and finding.measured == pytest.approx(-10)
    assert "Without 2 runs with a link of 2 GB/s" in finding.reason


def test_pipeline_choice_and_probing_are_read_from_the_runs(tmp_path: Path) -> None:
    for turn, choice in enumerate(["cross"] * 9 + ["intra"]):
        steps = [{"iteration": i, "strategy": s} for i, s in enumerate(["intra", "intra", "cross", choice, choice], 1)]
        result = {
            "pipeline": {"policy": "adaptive", "groups": {"direct": {"choice": choice, "iterations": steps}}},
            "pinned": {"bytes": 2 * 10**6, "locked": True},
            "plan.kpu_bytes": 2 * 10**6,
        }
        write_run(tmp_path, "dual_blade", 4.0, turn, result=result, config={"device.link": "cuda"})
    assert verdict_of("C18", tmp_path).verdict == "reproduced"
    assert verdict_of("C18", tmp_path).finding.measured == pytest.approx(90)
    assert verdict_of("C22", tmp_path).verdict == "reproduced"
    assert "probing iterations: 1" in verdict_of("C22", tmp_path).finding.text


def test_what_would_measure_a_claim_and_where_to_see_it_exists() -> None:
    experiments = {path.stem for path in (Path(__file__).parents[2] / "conf" / "experiment").glob("*.yaml")}
    for claim in CLAIMS.values():
        assert claim.experiment is None or claim.experiment in experiments, claim.id
        assert set(claim.figures) - {"io_layers"} <= set(FIGURES), claim.id


def test_every_claim_of_the_paper_is_there_and_says_how_it_is_judged() -> None:
    assert list(CLAIMS) == [f"C{number}" for number in range(1, 23)]
    for claim in CLAIMS.values():
        assert claim.published.text and claim.metric and claim.judged and "{" not in claim.metric + claim.judged
        assert claim.untestable is None or claim.id not in JUDGES


def test_without_results_every_claim_is_untestable_and_says_why(tmp_path: Path) -> None:
    setups = evidence.gather(tmp_path).setups
    for claim in CLAIMS.values():
        judgement = judge(claim, JUDGES, setups, "python -m experiments.run +experiment=all")
        assert judgement.verdict is Verdict.NOT_TESTABLE
        assert judgement.finding.reason and judgement.finding.measured is None


def test_too_few_limits_are_a_reason(tmp_path: Path) -> None:
    write_run(tmp_path, "baseline", 4.0)
    write_run(tmp_path, "dual_blade", 4.0)
    finding = verdict_of("C2", tmp_path).finding
    assert finding.verdict is Verdict.NOT_TESTABLE
    assert "baseline and dual_blade at 3 memory limits or more, and there are 1" in finding.reason


@pytest.mark.parametrize("trace", ["block_requests", "nvme_commands"])
def test_traced_runs_decide_no_latency(tmp_path: Path, trace: str) -> None:
    write(tmp_path, prefill(baseline=2.0, dual_blade=1.0), config={"trace.name": trace})
    assert verdict_of("C1", tmp_path).verdict is Verdict.NOT_TESTABLE


def test_failed_runs_decide_nothing(tmp_path: Path) -> None:
    failed = {"baseline": constant(status="failed", error="no luck"), "dual_blade": constant(prefill_s=1.0)}
    write(tmp_path, failed)
    assert verdict_of("C1", tmp_path).verdict is Verdict.NOT_TESTABLE


def test_an_emulated_device_gives_the_direction_of_a_size_at_most(tmp_path: Path) -> None:
    write(tmp_path, prefill(baseline=2.0, dual_blade=1.0), environment={"emulated": True})
    judgement = verdict_of("C1", tmp_path)
    assert judgement.verdict is Verdict.DIRECTION
    assert "emulated" in judgement.finding.reason and "(emulated" in str(judgement.finding.testbed)
    write(tmp_path / "hits", hits(baseline=lambda gb: float(gb > 9)), environment={"emulated": True})
    assert verdict_of("C4", tmp_path / "hits").verdict is Verdict.REPRODUCED


@pytest.mark.parametrize("case", ["C5 stalls", "C7 flat and last", "C8 everywhere"])
def test_what_rests_on_speeds_is_a_direction_on_an_emulated_ssd(tmp_path: Path, case: str) -> None:
    claim, curves, verdict = CASES[case]
    write(tmp_path, curves, environment={"emulated": True})
    assert verdict == Verdict.REPRODUCED
    assert verdict_of(claim, tmp_path).verdict is Verdict.DIRECTION


@pytest.mark.parametrize("case", [name for name, (*_, verdict) in CASES.items() if verdict == "reproduced"])
def test_one_repetition_gives_the_direction_at_most(tmp_path: Path, case: str) -> None:
    claim, curves, _ = CASES[case]
    write(tmp_path, curves, repetitions=1)
    finding = verdict_of(claim, tmp_path).finding
    assert finding.verdict is Verdict.DIRECTION
    assert "One repetition: direction only." in finding.reason


def test_a_finding_rests_on_the_point_with_fewest_repetitions() -> None:
    runs = ["e2e/a/rep-0", "e2e/a/rep-1", "e2e/b/rep-0", "thrashing/b/rep-0"]
    assert fewest_repetitions(runs[:2]) == 2
    assert fewest_repetitions(runs) == 1
    assert fewest_repetitions([]) == 0


@pytest.mark.parametrize("other", [{"cpu": "another"}, {"guest": {"accelerator": "kvm"}}], ids=str)
def test_each_machine_has_a_finding_of_its_own(tmp_path: Path, other: dict[str, Any]) -> None:
    write(tmp_path, prefill(baseline=2.0, dual_blade=1.4))
    write(tmp_path, prefill(baseline=2.0, dual_blade=2.2), experiment="other", environment=other, repetitions=2)
    findings = {finding.testbed: finding.verdict for finding in verdict_of("C1", tmp_path).findings}
    assert set(findings.values()) == {Verdict.REPRODUCED, Verdict.CONTRADICTED} and SETUP in findings
    assert any(str(name).startswith(f"{SETUP}, ") for name in findings)


def test_a_real_device_decides_and_the_emulated_one_is_kept_beside_it(tmp_path: Path) -> None:
    write(tmp_path, prefill(baseline=2.0, dual_blade=2.2))
    guest = {"emulated": True, "storage.model": "QEMU NVMe Ctrl"}
    write(tmp_path, prefill(baseline=2.0, dual_blade=1.0), experiment="guest", environment=guest)
    judgement = verdict_of("C1", tmp_path)
    assert [finding.verdict for finding in judgement.findings] == [Verdict.CONTRADICTED, Verdict.DIRECTION]
    assert [finding.testbed for finding in judgement.findings] == [
        SETUP,
        "local, disk QEMU NVMe Ctrl, storage=file, device=host, Linux 6.0 (emulated machine and SSD)",
    ]


def test_each_page_replacement_has_a_finding_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, hits(baseline=lambda gb: float(gb > 9)))
    multigen = {"lru_generation": "0x0007"}
    write(tmp_path, hits(baseline=ideal), experiment="lru", environment=multigen, repetitions=1)
    findings = {finding.testbed: finding.verdict for finding in verdict_of("C4", tmp_path).findings}
    assert findings == {SETUP: Verdict.REPRODUCED, f"{SETUP}, multi-generational LRU": Verdict.CONTRADICTED}


def test_json_has_the_agreed_fields_and_no_nan(tmp_path: Path) -> None:
    write(tmp_path, prefill(baseline=2.0, dual_blade=1.4), repetitions=1)
    setups = evidence.gather(tmp_path).setups
    text = to_json(judge(claim, JUDGES, setups, "") for claim in CLAIMS.values())
    entries = json.loads(text, parse_constant=pytest.fail)
    assert list(entries) == list(CLAIMS)
    for entry in entries.values():
        assert {"verdict", "published", "measured", "interval", "runs", "testbed", "reason"} <= entry.keys()
        assert entry["verdict"] in {"reproduced", "direction only", "contradicted", "not testable here"}
    assert entries["C1"]["measured"] == pytest.approx(-30) and entries["C1"]["interval"] is None
    assert entries["C1"]["runs"] == len(entries["C1"]["run_folders"]) == 2 * len(LIMITS_GB)


def test_a_claim_without_a_judge_gives_its_own_reason() -> None:
    claim: Claim = CLAIMS["C21"]
    judgement = judge(claim, {}, [], "")
    assert judgement.verdict is Verdict.NOT_TESTABLE and "flash" in judgement.finding.reason
