"""Each metric against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analysis.metrics import run_metrics
from analysis.results.load import load
from tests.support.analysis_results import write_run


def measured(tmp_path: Path) -> pd.Series:
    (_, run), *others = run_metrics.measure(load(tmp_path)).iterrows()
    assert not others
    return run


def test_decode_metrics_leave_the_cold_iteration_out(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        result={
            "decode_s": [9.0, 0.2, 0.6, 0.4],
            "hit_rate.decode_per_iteration": [0.9, 0.1, 0.2, 0.6],
            "hit_rate.decode": 0.3,
        },
    )
    run = measured(tmp_path)
    assert run["decode_s_per_token"] == pytest.approx(0.4)
    assert run["decode_hit_rate"] == pytest.approx(0.3)


def test_a_single_iteration_has_no_warm_value(tmp_path: Path) -> None:
    write_run(tmp_path, result={"decode_s": [0.5], "hit_rate.decode_per_iteration": [0.1]})
    run = measured(tmp_path)
    assert pd.isna(run["decode_s_per_token"]) and pd.isna(run["decode_hit_rate"])
    assert run["prefill_s"] > 0


def test_memory_axis_is_the_configured_limit(tmp_path: Path) -> None:
    write_run(tmp_path, memory_gb=9.75)
    assert measured(tmp_path)["memory_gb"] == 9.75


def test_a_budget_ratio_takes_the_place_of_the_limit(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        memory_gb=4.0,
        config={"budget_ratio": 0.5, "scale": 8, "paper_overhead_gb": 1.0},
        result={"plan.working_set_bytes": 10**9},
    )
    assert measured(tmp_path)["memory_gb"] == pytest.approx(1.0 + 0.5 * 8)


def test_without_a_limit_there_is_no_place_on_the_axis(tmp_path: Path) -> None:
    write_run(tmp_path, memory_gb=None)
    assert pd.isna(measured(tmp_path)["memory_gb"])


def test_working_set_is_the_papers_in_the_papers_units(tmp_path: Path) -> None:
    # paper.md: up to 543 tokens * 32 layers * 524,288 B for a batch of 32, 9.11 GB
    write_run(tmp_path, config={"scale": 8}, result={"plan.working_set_bytes": 543 * 32 * 524288 // 8})
    assert measured(tmp_path)["working_set_gb"] == pytest.approx(9.11, abs=0.005)


@pytest.mark.parametrize(
    ("switch", "name"),
    [
        ("absent", "classic"),
        ("0x0000", "classic"),
        ("0x0006", "classic"),
        ("0x0007", "multi-generational"),
        ("0x0001", "multi-generational"),
        ("0xzz", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_lru_is_named_by_the_kernels_switch(tmp_path: Path, switch: str | None, name: str) -> None:
    write_run(tmp_path, environment={"lru_generation": switch})
    assert measured(tmp_path)["lru"] == name


def test_metrics_of_nothing_are_nothing(tmp_path: Path) -> None:
    assert run_metrics.measure(load(tmp_path)).empty
