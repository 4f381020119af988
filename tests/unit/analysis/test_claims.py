"""Claims: every one of the paper's has a verdict, and each verdict follows from what the files hold."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.claims.judges import JUDGES
from analysis.claims.verdict import Claim, Verdict, fewest_repetitions, judge, to_json
from analysis.figures.registry import FIGURES
from analysis.selection import setups
from tests.support.analysis_results import VARIANTS, write_run
from tests.support.checkout import CHECKOUT
from tests.support.claim_results import (
    CASES,
    CLAIMS,
    KV_GB,
    LIMITS_GB,
    SETUP,
    Curve,
    constant,
    hits,
    ideal,
    prefill,
    verdict_of,
    write,
)


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


def write_flat(results_dir: Path, missing_gb: float, repetitions: Mapping[str, int]) -> None:
    """Flat curves of all variants, NVMe-direct-Only last; the Baseline lacks a limit, and some lack repetitions."""
    for variant, limit_gb in itertools.product(VARIANTS, LIMITS_GB):
        if (variant, limit_gb) == ("baseline", missing_gb):
            continue
        for turn in range(repetitions.get(variant, 2)):
            seconds = 0.5 if variant == "nvme_direct_only" else 0.4
            write_run(results_dir, variant, limit_gb, turn, result={"decode_s": [seconds] * 8})


def test_who_is_last_is_said_of_the_highest_limit_that_all_variants_have(tmp_path: Path) -> None:
    write_flat(tmp_path, 11.0, {})
    finding = verdict_of("C7", tmp_path).finding
    assert finding.text == "+0 % from 2 to 11 GB; last at 8 GB"
    ample = {f"default/{variant}-8.0/rep-{turn}" for variant in VARIANTS for turn in range(2)}
    direct = {f"default/nvme_direct_only-{limit_gb}/rep-{turn}" for limit_gb in LIMITS_GB for turn in range(2)}
    assert set(finding.runs) == ample | direct and finding.verdict is Verdict.REPRODUCED


def test_who_is_last_rests_on_the_repetitions_of_all_variants(tmp_path: Path) -> None:
    write_flat(tmp_path, 2.0, {"baseline": 1})
    finding = verdict_of("C7", tmp_path).finding
    assert finding.verdict is Verdict.DIRECTION and "One repetition: direction only." in finding.reason


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


def test_what_would_measure_a_claim_and_where_to_see_it_exists() -> None:
    experiments = {path.stem for path in (CHECKOUT / "conf" / "experiment").glob("*.yaml")}
    for claim in CLAIMS.values():
        assert claim.experiment is None or claim.experiment in experiments, claim.id
        assert set(claim.figures) - {"io_layers"} <= set(FIGURES), claim.id


def test_every_claim_of_the_paper_is_there_and_says_how_it_is_judged() -> None:
    assert list(CLAIMS) == [f"C{number}" for number in range(1, 23)]
    for claim in CLAIMS.values():
        assert claim.published.text and claim.metric and claim.judged and "{" not in claim.metric + claim.judged
        assert claim.untestable is None or claim.id not in JUDGES


def test_without_results_every_claim_is_untestable_and_says_why(tmp_path: Path) -> None:
    gathered = setups.gather(tmp_path).setups
    for claim in CLAIMS.values():
        judgement = judge(claim, JUDGES, gathered, "python -m experiments.run +experiment=all")
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


@pytest.mark.parametrize(
    "paced",
    [
        {"storage.pace": {"name": "a stated rate", "read_gb_per_s": 1.5}},
        {"device.link": "paced", "device.pace": {"gb_per_s": 3.5}},
    ],
    ids=str,
)
def test_a_pace_under_the_name_of_a_real_device_is_a_setup_of_its_own(tmp_path: Path, paced: dict[str, Any]) -> None:
    """One run of the real device among those with a pace, and the first of all."""
    write_run(tmp_path, "baseline", 1.5, experiment="a")
    write(tmp_path, prefill(baseline=2.0, dual_blade=1.0), config=paced)
    judgement = verdict_of("C1", tmp_path)
    assert judgement.verdict is Verdict.DIRECTION and "paced" in judgement.finding.reason
    assert [finding.testbed for finding in judgement.findings][1:] == [SETUP]


def test_each_pace_has_a_finding_of_its_own(tmp_path: Path) -> None:
    for rate, own_s in ((1, 1.4), (2, 2.2)):
        pace = {"storage.pace": {"name": "a stated rate", "read_gb_per_s": rate}}
        write(tmp_path, prefill(baseline=2.0, dual_blade=own_s), config=pace, experiment=f"paced-{rate}")
    findings = {finding.testbed: finding.verdict for finding in verdict_of("C1", tmp_path).findings}
    assert findings == {
        f"{SETUP} (SSD paced to 1 GB/s)": Verdict.DIRECTION,
        f"{SETUP} (SSD paced to 2 GB/s)": Verdict.CONTRADICTED,
    }


def test_each_page_replacement_has_a_finding_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, hits(baseline=lambda gb: float(gb > 9)))
    multigen = {"lru_generation": "0x0007"}
    write(tmp_path, hits(baseline=ideal), experiment="lru", environment=multigen, repetitions=1)
    findings = {finding.testbed: finding.verdict for finding in verdict_of("C4", tmp_path).findings}
    assert findings == {SETUP: Verdict.REPRODUCED, f"{SETUP}, multi-generational LRU": Verdict.CONTRADICTED}


def test_json_has_the_agreed_fields_and_no_nan(tmp_path: Path) -> None:
    write(tmp_path, prefill(baseline=2.0, dual_blade=1.4), repetitions=1)
    gathered = setups.gather(tmp_path).setups
    text = to_json(judge(claim, JUDGES, gathered, "") for claim in CLAIMS.values())
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
