"""What is said about I/O paths follows from equal cells, and only where the path makes the difference."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.claims.verdict import Verdict
from tests.support.analysis_results import io_cell, write_io
from tests.support.claim_results import (
    verdict_of,
)


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
        ({"io_uring_cmd": 20, "ext4_buffered": 40}, "direction only"),
        ({"io_uring_cmd": 50, "ext4_buffered": 40}, "contradicted"),
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
        assert "SPDK was not measured" in judgement.finding.reason


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
