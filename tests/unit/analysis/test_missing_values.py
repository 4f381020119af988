"""Runs that lack a value, or that nothing can be held against, decide no claim and end no report."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from analysis.claims.verdict import Finding, Verdict, judge
from analysis.report.__main__ import main as report
from analysis.selection import setups
from tests.support.analysis_results import VARIANTS, write_run, write_sweep
from tests.support.claim_results import CASES, CLAIMS, LIMITS_GB, verdict_of, write
from tests.support.device_traces import write_traced_run

COLD_ALONE: dict[str, Any] = {"decode_s": [0.5], "hit_rate.decode_per_iteration": [0.1]}


@pytest.mark.parametrize("claim", ["C2", "C4", "C6", "C7", "C8", "C9"])
def test_a_single_iteration_decides_nothing_on_decode(tmp_path: Path, claim: str) -> None:
    write_sweep(tmp_path, limits_gb=LIMITS_GB, repetitions=2, result=COLD_ALONE)
    finding = verdict_of(claim, tmp_path).finding
    assert finding.verdict is Verdict.NOT_TESTABLE and "of warm iterations of" in finding.reason
    assert verdict_of("C1", tmp_path).verdict is not Verdict.NOT_TESTABLE


def test_a_longer_sweep_of_single_iterations_hides_no_shorter_one(tmp_path: Path) -> None:
    claim, curves, verdict = CASES["C2 everywhere"]
    write(tmp_path, curves)
    write_sweep(tmp_path, experiment="cold", repetitions=2, result=COLD_ALONE)
    assert verdict_of(claim, tmp_path).verdict == verdict


def test_single_iterations_end_no_report(tmp_path: Path) -> None:
    write_sweep(tmp_path / "results", limits_gb=LIMITS_GB, result=COLD_ALONE)
    for variant in VARIANTS:
        write_traced_run(tmp_path / "results", variant, result=COLD_ALONE)
    assert report(["--results", str(tmp_path / "results"), "--out", str(tmp_path / "report")]) == 0
    assert "nan s" not in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.parametrize("claim", ["C1", "C2", "C8"])
def test_variants_of_different_repetitions_are_not_compared(tmp_path: Path, claim: str) -> None:
    write_sweep(tmp_path, [name for name in VARIANTS if name != "dual_blade"], LIMITS_GB)
    for limit_gb in LIMITS_GB:
        write_run(tmp_path, "dual_blade", limit_gb, repetition=1)
    finding = verdict_of(claim, tmp_path).finding
    assert finding.verdict is Verdict.NOT_TESTABLE and "share a repetition" in finding.reason


def test_a_finding_rests_on_the_repetitions_that_all_variants_have(tmp_path: Path) -> None:
    """Two of each, and a single pair."""
    for variant, turns, seconds in (("baseline", (0, 1), 2.0), ("dual_blade", (1, 2), 1.0)):
        for limit_gb in LIMITS_GB:
            for turn in turns:
                write_run(tmp_path, variant, limit_gb, turn, result={"prefill_s": seconds})
    finding = verdict_of("C1", tmp_path).finding
    assert {Path(run).name for run in finding.runs} == {"rep-1"}
    assert finding.verdict is Verdict.DIRECTION and "One repetition: direction only." in finding.reason


@pytest.mark.parametrize(("claim", "variants"), [("C6", ["cachepolicy_only"]), ("C7", VARIANTS), ("C9", VARIANTS)])
def test_no_line_goes_through_two_limits_of_each_repetition(tmp_path: Path, claim: str, variants: list[str]) -> None:
    for turn, limits_gb in enumerate([(2.0, 4.0), (6.0, 8.0)]):
        for variant in variants:
            for limit_gb in limits_gb:
                write_run(tmp_path, variant, limit_gb, turn)
    finding = verdict_of(claim, tmp_path).finding
    assert finding.verdict is Verdict.NOT_TESTABLE and "a repetition with 3 limits" in finding.reason


def test_phases_of_decode_alone_say_nothing_of_prefill(tmp_path: Path) -> None:
    phases = {"decode": {"storage_stall_s": 0.7, "wall_s": 1.0}}
    write_sweep(tmp_path, ["baseline"], LIMITS_GB, result={"phases": phases})
    assert verdict_of("C10", tmp_path).verdict is Verdict.NOT_TESTABLE


@pytest.mark.parametrize("measured", [math.nan, math.inf])
def test_what_is_no_number_is_no_verdict(tmp_path: Path, measured: float) -> None:
    write_run(tmp_path)
    judges = {"C1": lambda claim, setup: Finding(Verdict.CONTRADICTED, measured, text="changed by nan %")}
    finding = judge(CLAIMS["C1"], judges, setups.gather(tmp_path).setups, "").finding
    assert finding.verdict is Verdict.NOT_TESTABLE and finding.text == "" and "no value" in finding.reason
