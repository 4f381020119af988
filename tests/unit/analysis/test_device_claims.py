"""Claims on the device: verdicts from traces whose commands are made up, so that every number is known by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.claims.verdict import Judgement
from tests.support.analysis_results import write_run
from tests.support.device_traces import write_trace
from tests.unit.analysis.test_claims import verdict_of

MIB, US = 1 << 20, 1000
TENSOR_BYTES = 16 * MIB
TRACED = {"trace.name": "block_requests"}
UNATTRIBUTED = {"layer": -1, "kind": "", "path": "", "tensor_offset_bytes": -1, "phase": "", "iteration": -1}


def trace(
    run_dir: Path,
    read_us: int,
    read_gap_us: int = 0,
    row_us: int = 50,
    chunk_bytes: int = MIB,
    hole_every: int = 0,
    read_queues: int = 1,
    attributed: bool = True,
    **info: Any,
) -> None:
    """Prefill writes and, in iteration 2, reads of a tensor, one command after another, and one row after them.

    A read takes `read_us` and then the device idles `read_gap_us`; each `hole_every`-th leaves a hole behind it.
    """
    commands: list[Mapping[str, Any]] = []
    requests: list[Mapping[str, Any]] = []
    now = 0
    for phase, iteration, op in (("prefill", 0, "write"), ("decode", 2, "read")):
        begin, where = now, {"phase": phase, "iteration": iteration, "op": op}
        for turn in range(TENSOR_BYTES // chunk_bytes):
            offset = (turn + (turn // hole_every if hole_every else 0)) * chunk_bytes
            queue = turn % read_queues if op == "read" else 0
            times = {"issue_ns": now, "complete_ns": now + read_us * US}
            commands.append({**where, **times, "queue": queue, "offset_bytes": offset, "bytes": chunk_bytes})
            now += (read_us + read_gap_us) * US
        requests.append({**where, "bytes": TENSOR_BYTES, "storage_start_ns": begin, "storage_end_ns": now})
    row = {"phase": "decode", "iteration": 2, "op": "write", "bytes": 4096}
    commands.append({**row, "offset_bytes": 1 << 40, "issue_ns": now, "complete_ns": now + row_us * US})
    requests.append({**row, "storage_start_ns": now, "storage_end_ns": now + row_us * US})
    known = {} if attributed else dict(UNATTRIBUTED)
    write_trace(run_dir, [{**command, **known} for command in commands], requests, **info)


def judged(claim: str, results_dir: Path, baseline: dict[str, Any], own: dict[str, Any] | None = None) -> Judgement:
    for variant, settings in {"baseline": baseline, "dual_blade": own}.items():
        if settings is not None:
            for turn in range(2):
                trace(write_run(results_dir, variant, 2.0, turn, config=TRACED), **settings)
    return verdict_of(claim, results_dir)


SLOW = {"read_us": 100, "read_gap_us": 100, "row_us": 5000, "chunk_bytes": MIB // 8, "hole_every": 1}


@pytest.mark.parametrize(
    ("claim", "own", "verdict", "measured"),
    [
        # 1/8 MiB in 200 us against 1 MiB in 400 us: four times the rate, in both phases.
        ("C3", {"read_us": 400}, "reproduced", 4.0),
        ("C3", {"read_us": 1200}, "direction only", 4 / 3),
        ("C3", {"read_us": 1600}, "contradicted", 1.0),
        ("C12", {"read_us": 400, "row_us": 50}, "reproduced", -99.0),
        ("C12", {"read_us": 400, "row_us": 1000}, "direction only", -80.0),
        ("C12", {"read_us": 400, "row_us": 6000}, "contradicted", 20.0),
        # 200 us for 1/8 MiB against 400 us for 1 MiB: a quarter of the time, and no gaps.
        ("C13", {"read_us": 400}, "reproduced", -75.0),
        ("C13", {"read_us": 2000}, "contradicted", 25.0),
        # None of 1/8 MiB follows another; of 15 commands of 1 MiB after the first, all, or those without a hole before.
        ("C14", {"read_us": 400}, "reproduced", 100.0),
        ("C14", {"read_us": 400, "hole_every": 3}, "direction only", 100 * 10 / 15),
        ("C14", {"read_us": 400, "hole_every": 1}, "contradicted", 0.0),
        ("C14", {"read_us": 100, "chunk_bytes": MIB // 8, "hole_every": 1}, "contradicted", 0.0),
        ("C16", {"read_us": 400}, "direction only", 0.0),
        ("C16", {"read_us": 1600}, "contradicted", 0.0),
    ],
)
def test_own_commands_are_held_against_the_baselines(
    tmp_path: Path, claim: str, own: dict[str, Any], verdict: str, measured: float
) -> None:
    judgement = judged(claim, tmp_path, SLOW, own)
    assert judgement.verdict == verdict, judgement.finding
    assert judgement.finding.measured == pytest.approx(measured, rel=1e-6)
    assert len(judgement.finding.runs) == 4


@pytest.mark.parametrize(
    ("baseline", "verdict", "measured"),
    [
        ({"read_us": 50, "read_gap_us": 50}, "reproduced", 50),
        ({"read_us": 80, "read_gap_us": 20}, "direction only", 80),
        ({"read_us": 100}, "contradicted", 100),
    ],
)
def test_busy_rate_is_the_time_with_a_command_in_flight(
    tmp_path: Path, baseline: dict[str, Any], verdict: str, measured: float
) -> None:
    judgement = judged("C11", tmp_path, baseline)
    assert judgement.verdict == verdict
    assert judgement.finding.measured == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(
    ("queues", "verdict"), [(4, "reproduced"), (1, "not testable here")], ids=["four queues", "one queue"]
)
def test_queues_count_by_their_shares(tmp_path: Path, queues: int, verdict: str) -> None:
    judgement = judged("C15", tmp_path, {"read_us": 100, "read_queues": queues})
    assert judgement.verdict == verdict
    if queues > 1:
        assert judgement.finding.measured == pytest.approx(queues - 1)


def test_large_commands_alone_are_no_order(tmp_path: Path) -> None:
    """Both in the tensor's order: the Baseline with eight times as many commands."""
    ordered = {"read_us": 100, "chunk_bytes": MIB // 8}
    judgement = judged("C14", tmp_path, ordered, {"read_us": 400})
    assert judgement.verdict == "contradicted" and judgement.finding.measured == pytest.approx(0)
    assert "100 % to 100 % in order" in judgement.finding.text


@pytest.mark.parametrize("claim", ["C3", "C11", "C12", "C13"])
def test_a_claim_at_2_gb_is_not_judged_at_another_limit(tmp_path: Path, claim: str) -> None:
    for variant in ("baseline", "dual_blade"):
        trace(write_run(tmp_path, variant, 4.0, config=TRACED), **SLOW)
    finding = verdict_of(claim, tmp_path).finding
    assert finding.verdict == "not testable here" and "at 2 GB" in finding.reason
    assert verdict_of("C14", tmp_path).verdict == "contradicted"


def test_a_trace_of_the_layers_decides_no_claim(tmp_path: Path) -> None:
    for variant in ("baseline", "dual_blade"):
        trace(write_run(tmp_path, variant, 2.0, config={"trace.name": "io_layers"}), **SLOW)
    assert verdict_of("C12", tmp_path).verdict == "not testable here"


def test_one_traced_repetition_gives_the_direction_at_most(tmp_path: Path) -> None:
    for variant, settings in {"baseline": SLOW, "dual_blade": {"read_us": 400}}.items():
        trace(write_run(tmp_path, variant, 2.0, config=TRACED), **settings)
    assert {verdict_of(claim, tmp_path).verdict for claim in ("C3", "C12", "C13", "C14")} == {"direction only"}


def test_a_trace_that_lost_events_decides_nothing(tmp_path: Path) -> None:
    lossy = {"read_us": 100, "valid": False, "reason": "7 of 130 events were lost"}
    judgement = judged("C3", tmp_path, lossy, {"read_us": 50})
    assert judgement.verdict == "not testable here"
    assert "7 of 130 events were lost" in judgement.finding.reason


@pytest.mark.parametrize("claim", ["C3", "C14", "C15"])
def test_a_trace_without_commands_of_tensors_decides_nothing_on_them(tmp_path: Path, claim: str) -> None:
    known = {"read_us": 100, "read_queues": 4}
    judgement = judged(claim, tmp_path, {**known, "attributed": False}, known)
    assert judgement.verdict == "not testable here"
    assert "has no command that belongs to a decode read" in judgement.finding.reason


def test_of_two_traces_the_one_with_commands_of_tensors_decides(tmp_path: Path) -> None:
    for turn, attributed in enumerate([True, False]):
        run_dir = write_run(tmp_path, "baseline", 2.0, turn, config=TRACED)
        trace(run_dir, read_us=100, read_queues=4, attributed=attributed)
    finding = verdict_of("C15", tmp_path).finding
    assert finding.measured == pytest.approx(3) and finding.runs == ("default/baseline-2.0/rep-0",)


@pytest.mark.parametrize("claim", ["C3", "C13", "C14", "C15"])
def test_traces_of_a_single_iteration_decide_nothing_on_decode(tmp_path: Path, claim: str) -> None:
    cold_alone = {"decode_s": [0.5], "hit_rate.decode_per_iteration": [0.1]}
    for variant in ("baseline", "dual_blade"):
        trace(write_run(tmp_path, variant, 2.0, config=TRACED, result=cold_alone), read_us=100, read_queues=4)
    assert verdict_of(claim, tmp_path).verdict == "not testable here"


def test_traces_of_different_tracers_are_not_compared(tmp_path: Path) -> None:
    trace(write_run(tmp_path, "baseline", 2.0, config=TRACED), **SLOW)
    trace(write_run(tmp_path, "dual_blade", 2.0, config={"trace.name": "nvme_commands"}), read_us=400)
    assert verdict_of("C3", tmp_path).verdict == "not testable here"


def test_an_emulated_ssd_decides_no_claim_on_idle_time(tmp_path: Path) -> None:
    for variant in ("baseline", "dual_blade"):
        trace(write_run(tmp_path, variant, 2.0, config=TRACED, environment={"emulated": True}), **SLOW)
    for claim, verdict in (("C3", "not testable here"), ("C11", "not testable here"), ("C14", "contradicted")):
        assert verdict_of(claim, tmp_path).verdict == verdict
