"""Device metrics against numbers worked out by hand, and against slow definitions that look at every instant."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.metrics import device_metrics, intervals
from analysis.results.device_io import DECODE_READ, DECODE_WRITE, PREFILL_WRITE, DeviceIO, load_device_io
from analysis.results.documents import ResultsError
from tests.support.device_traces import COMMAND, write_trace, write_traced_run
from traces import schema

TIMES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


def frame(*commands: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame([{**COMMAND, **command} for command in commands])


def loaded(tmp_path: Path, commands: list[dict[str, Any]], requests: list[dict[str, Any]]) -> DeviceIO:
    write_trace(tmp_path, commands, requests)
    return load_device_io(tmp_path)


@given(TIMES, TIMES)
def test_unions_and_overlaps_are_what_every_instant_says(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    sets = [{t for begin, size in spans for t in range(begin, begin + size)} for spans in (one, other)]
    unions = [
        intervals.union([begin for begin, _ in spans], [begin + size for begin, size in spans])
        for spans in (one, other)
    ]
    assert [intervals.length(union) for union in unions] == [len(instants) for instants in sets]
    assert intervals.overlap(*unions) == len(sets[0] & sets[1])


def test_busy_rate_counts_overlaps_once_and_only_the_kinds_time(tmp_path: Path) -> None:
    """Requests cover 0-100 and 200-300; commands are in flight in 10-40, 30-60 and 90-250: 50 + 10 + 50 of 200 ns."""
    commands = [{"issue_ns": b, "complete_ns": e} for b, e in ((10, 40), (30, 60), (90, 250))]
    requests = [{"storage_start_ns": b, "storage_end_ns": e} for b, e in ((0, 100), (200, 300))]
    io = loaded(tmp_path, commands, requests)
    assert device_metrics.busy_rate(io, DECODE_READ) == pytest.approx(110 / 200)
    assert math.isnan(device_metrics.busy_rate(io, PREFILL_WRITE))


def test_a_request_kind_has_its_own_latency_rate_and_commands(tmp_path: Path) -> None:
    commands = [
        {"op": "write", "bytes": 8000, "issue_ns": 0, "complete_ns": 2000},
        {"bytes": 4000, "issue_ns": 1000, "complete_ns": 5000},
        {"bytes": 4000, "issue_ns": 2000, "complete_ns": 4000},
    ]
    requests = [{"storage_start_ns": 0, "storage_end_ns": 8000}, {"op": "write", "storage_end_ns": 4_000_000}]
    record = device_metrics.device_metrics(loaded(tmp_path, commands, requests))
    assert record["command_us.decode_read.mean"] == 3
    assert record["us_per_kb.decode_write.p50"] == pytest.approx(2 / 8)
    assert record["request_ms.decode_write.p99"] == 4
    assert record["gb_per_s.decode_read"] == pytest.approx(8000 / 8000)
    assert record["commands.prefill_write"] == 0


def test_the_cold_iteration_and_unfinished_commands_count_in_nothing(tmp_path: Path) -> None:
    commands = [{"iteration": 1}, {"iteration": 2}, {"complete_ns": -1}, {"op": "flush"}]
    io = loaded(tmp_path, commands, [{"iteration": 1}, {"iteration": 3}])
    assert list(io.commands["iteration"]) == [2]
    assert list(io.requests["iteration"]) == [3]


def two_interleaved_tensors() -> pd.DataFrame:
    """K at 0 and V at 1 MiB, in 4 commands each, in turn; each from a queue of its own."""
    return frame(
        *(
            {"kind": kind, "queue": q, "offset_bytes": (q << 20) + 1000 * n, "bytes": 1000, "issue_ns": 2 * n + q}
            for n in range(4)
            for q, kind in enumerate("kv")
        )
    )


@pytest.mark.parametrize(
    ("stream", "runs", "kb"),
    [(("device",), 8, 1.0), (("device", "queue"), 2, 4.0), (("device", "layer", "kind"), 2, 4.0)],
)
def test_sequential_runs_depend_on_whose_order_is_looked_at(stream: tuple[str, ...], runs: int, kb: float) -> None:
    commands = two_interleaved_tensors().sample(frac=1, random_state=1)  # the order of issue counts, not that of rows
    assert len(device_metrics.sequential_runs(commands, stream)) == runs
    assert device_metrics.kb_per_run(commands, stream) == kb


@pytest.mark.parametrize(
    ("stream", "share"), [(("device",), 0), (("device", "queue"), 1), (("device", "layer", "kind"), 1)]
)
def test_order_is_that_within_a_stream(stream: tuple[str, ...], share: float) -> None:
    commands = two_interleaved_tensors().sample(frac=1, random_state=1)
    assert device_metrics.in_order(commands, stream) == share


@given(st.integers(2, 64), st.integers(1, 8))
def test_order_does_not_depend_on_the_size_of_commands(n_commands: int, n_tensors: int) -> None:
    """Tensors of 64 KB one after another, each in so many commands: in order, and with the commands last to first."""
    size = 64_000 // n_commands
    grid = [(layer, n) for layer in range(n_tensors) for n in range(n_commands)]
    places = {"forwards": lambda n: n, "backwards": lambda n: n_commands - 1 - n}
    shares = {}
    for name, place in places.items():
        commands = (
            {"layer": layer, "offset_bytes": (layer << 20) + size * place(n), "bytes": size, "issue_ns": turn}
            for turn, (layer, n) in enumerate(grid)
        )
        shares[name] = device_metrics.in_order(frame(*commands))
    assert shares == {"forwards": 1, "backwards": 0}


def test_a_gap_a_step_back_and_the_other_direction_end_a_run() -> None:
    offsets = [(0, "read"), (1000, "read"), (3000, "read"), (2000, "read"), (3000, "write"), (3000, "read")]
    commands = frame(
        *({"offset_bytes": o, "bytes": 1000, "issue_ns": n, "op": op} for n, (o, op) in enumerate(offsets))
    )
    assert list(device_metrics.sequential_runs(commands)) == [2000, 1000, 2000, 1000]  # the write is the last


def test_queues_are_counted_by_how_evenly_they_are_used() -> None:
    assert device_metrics.effective_queues(frame(*({"queue": n % 4} for n in range(40)))) == pytest.approx(4)
    assert device_metrics.effective_queues(frame({"queue": 3}, {"queue": 3})) == pytest.approx(1)
    assert 1 < device_metrics.effective_queues(frame(*({"queue": int(n == 0)} for n in range(100)))) < 1.1


def test_time_per_kb_is_binned_by_depth() -> None:
    """Depths 2 and 3 are one bin, 64 and 200 the last; an unknown depth is none."""
    depths = {1: 1000, 2: 2000, 3: 4000, 64: 8000, 200: 8000, -1: 1}
    table = device_metrics.by_depth(
        frame(*({"depth_at_issue": d, "bytes": 1000, "complete_ns": ns} for d, ns in depths.items()))
    )
    assert list(table["depth"]) == [1, 2, 64]
    assert list(table["median"]) == [1, 3, 8]
    assert list(table["commands"]) == [1, 2, 2]
    assert table["p5"][1] == pytest.approx(2.1) and table["p95"][1] == pytest.approx(3.9)


@given(st.lists(st.tuples(st.integers(0, 80), st.integers(1, 30), st.integers(1, 9)), min_size=1, max_size=8))
def test_throughput_over_time_is_what_every_instant_says(spans: list[tuple[int, int, int]]) -> None:
    """Each command moves bytes in proportion to its time, one rate for each ns."""
    commands = frame(*({"issue_ns": b, "complete_ns": b + t, "bytes": t * rate} for b, t, rate in spans))
    per_ns = np.zeros(120)
    for begin, time, rate in spans:
        per_ns[begin : begin + time] += rate
    table = device_metrics.throughput(commands, 0, 120, 12)
    assert table["gb_per_s"].to_numpy() == pytest.approx(per_ns.reshape(12, 10).mean(axis=1))
    assert table["seconds"][0] == pytest.approx(5e-9)


def test_throughput_of_nothing_is_nothing() -> None:
    assert device_metrics.throughput(frame({}).head(0), 0, 100, 4)["gb_per_s"].tolist() == [0, 0, 0, 0]


def test_a_whole_run_shows_what_the_variants_differ_in(tmp_path: Path) -> None:
    """The synthetic Baseline: 60 of 90 us busy, 128 KiB in turn from two tensors."""
    baseline, direct = (
        device_metrics.device_metrics(load_device_io(write_traced_run(tmp_path, variant)))
        for variant in ("baseline", "dual_blade")
    )
    assert baseline["busy_rate.decode_read"] == pytest.approx(60 / 90)
    assert direct["busy_rate.decode_read"] == pytest.approx(1)
    assert baseline["kb_per_run_device.decode_read"] == pytest.approx(131.072)
    assert baseline["kb_per_run_tensor.decode_read"] == pytest.approx(2097.152)
    assert direct["kb_per_run_queue.prefill_write"] == pytest.approx(2097.152)
    assert direct["gb_per_s.decode_read"] == pytest.approx(2 * (2 << 20) / 480_000)
    assert baseline[f"commands.{DECODE_WRITE.phase}_{DECODE_WRITE.op}"] == 4


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (lambda path: path.unlink(), "does not exist"),
        (lambda path: path.write_bytes(b"PAR1"), "damaged"),
        (lambda path: write_trace(path.parent, [], valid=False, reason="3 events were lost"), "3 events were lost"),
    ],
    ids=["missing", "damaged", "lossy"],
)
def test_a_trace_that_cannot_be_used_is_one_sentence(tmp_path: Path, damage: Any, cause: str) -> None:
    write_trace(tmp_path, [{}])
    damage(tmp_path / schema.FILE_NAME)
    with pytest.raises(ResultsError, match=cause) as error:
        load_device_io(tmp_path)
    assert "\n" not in str(error.value)
