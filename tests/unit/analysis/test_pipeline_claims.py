"""What is said about the pipeline and its cost follows from runs that differ in nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from analysis.claims.verdict import Verdict
from tests.support.analysis_results import write_run
from tests.support.claim_results import (
    decode,
    verdict_of,
    write,
)


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


def write_ratios(results_dir: Path, layers_in_dram: Iterable[int], iterations: int = 8, own_s: float = 0.9) -> None:
    """Two repetitions without a limit of intra, which takes 1 s, and adaptive, at shares of 32 layers."""
    for n1, (pipeline, seconds), turn in itertools.product(
        layers_in_dram, (("adaptive", own_s), ("intra", 1.0)), range(2)
    ):
        config = {"variant.pipeline": pipeline, "variant.knob": f"{100 * n1 // 32}%", "device.link": "cuda"}
        rates = {"hit_rate.decode_per_iteration": [0.0] * iterations}
        result = {"decode_s": [seconds] * iterations, "plan.n1": n1} | rates
        write_run(results_dir, "dual_blade", None, turn, f"{pipeline}-{n1}-{iterations}", config, result=result)


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


@pytest.mark.parametrize("link", ["host", "shared"])
def test_a_copy_in_host_memory_and_shared_memory_are_no_link(tmp_path: Path, link: str) -> None:
    groups = {"direct": {"choice": "cross", "iterations": []}}
    for turn in range(2):
        config = {"variant.pipeline": "adaptive", "device.link": link}
        write_run(tmp_path, "dual_blade", 4.0, turn, config=config, result={"pipeline": {"groups": groups}})
    for claim in ("C17", "C18"):
        assert "no link to overlap" in verdict_of(claim, tmp_path).finding.reason


def test_results_from_before_the_pipeline_are_no_obstacle(tmp_path: Path) -> None:
    write_run(tmp_path, "dual_blade", config={"device.link": "cuda"})
    assert verdict_of("C17", tmp_path).verdict is Verdict.NOT_TESTABLE


def test_ratios_without_a_limit_pair_up_by_the_variants_other_settings(tmp_path: Path) -> None:
    write_ratios(tmp_path, (0, 16))
    finding = verdict_of("C17", tmp_path).finding
    assert finding.measured == pytest.approx(-10) and "2 DRAM:SSD ratios" in finding.text and len(finding.runs) == 8


def test_each_ratio_counts_once_and_in_the_setting_with_most_of_them(tmp_path: Path) -> None:
    write_ratios(tmp_path, (0, 8, 16))
    write_ratios(tmp_path, (0, 8), iterations=5, own_s=1.5)
    finding = verdict_of("C17", tmp_path).finding
    assert finding.text == "-10 % in the median over 3 DRAM:SSD ratios" and len(finding.runs) == 12
    assert "Without 8 runs of adaptive, intra with decode_iterations=5." in finding.reason


def test_ratios_of_a_single_pipeline_do_not_decide_the_setting(tmp_path: Path) -> None:
    write_ratios(tmp_path, (0, 16))
    for n1 in range(0, 32, 4):
        config = {"variant.pipeline": "adaptive", "device.link": "cuda", "scale": 16}
        write_run(tmp_path, "dual_blade", None, 0, f"alone-{n1}", config, result={"plan.n1": n1})
    assert "2 DRAM:SSD ratios" in verdict_of("C17", tmp_path).finding.text


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
