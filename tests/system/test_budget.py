"""B_pc against what the kernel then really keeps: a file that fits is re-read from memory, a larger one is not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MIB = 2**20
BUFFER_BYTES = 24 * MIB
CHECKOUT = Path(__file__).parents[2]

# Limits of a cgroup and of the one inside it that the process is in: either may decide.
NESTED = [(160 * MIB, 320 * MIB), (320 * MIB, 160 * MIB)]

Fill = Callable[[float], dict[str, Any]]


@pytest.fixture(params=NESTED, ids=["outer-decides", "inner-decides"])
def fill(request: pytest.FixtureRequest, make_cgroup: Callable[..., Path], disk_path: Path) -> Fill:
    """Measures B_pc in a process two cgroups deep, then reads a file of `ratio` times B_pc three times over."""
    outer_bytes, inner_bytes = request.param
    outer = make_cgroup(outer_bytes)
    inner = make_cgroup(inner_bytes, outer)

    def run(ratio: float) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.system.page_cache_filler", inner, disk_path / "kv", ratio, BUFFER_BYTES]
        output = subprocess.run([*map(str, command)], cwd=CHECKOUT, check=True, capture_output=True, timeout=120).stdout
        return {**json.loads(output), "decides": min((outer_bytes, outer), (inner_bytes, inner))[1]}

    return run


def test_a_file_within_the_budget_is_reread_from_memory(fill: Fill) -> None:
    filled = fill(0.95)
    cold_bytes, *warm_bytes = filled["device_bytes"]
    assert cold_bytes >= filled["size_bytes"]
    assert warm_bytes == [0, 0]


def test_a_file_beyond_the_budget_is_not(fill: Fill) -> None:
    """No replacement policy can keep more than the budget: what exceeds it comes from the device each time."""
    filled = fill(1.05)
    excess_bytes = filled["size_bytes"] - filled["allocated"]["b_pc_bytes"]
    assert min(filled["device_bytes"]) >= 0.9 * excess_bytes


def test_buffers_count_alike_before_and_after_their_allocation(fill: Fill) -> None:
    filled = fill(0.1)
    assert filled["announced"]["b_pc_bytes"] == pytest.approx(filled["allocated"]["b_pc_bytes"], abs=2 * MIB)
    assert filled["allocated"]["process_bytes"] >= BUFFER_BYTES


def test_dirty_pages_are_budget_still(fill: Fill) -> None:
    filled = fill(0.5)
    assert filled["dirty"]["b_pc_bytes"] == pytest.approx(filled["allocated"]["b_pc_bytes"], abs=2 * MIB)


def test_the_tighter_cgroup_is_named_with_its_limit(fill: Fill) -> None:
    filled = fill(0.1)
    budget = filled["allocated"]
    assert Path(budget["limited_by"]).parent == filled["decides"]
    assert budget["limit_bytes"] == 160 * MIB
    assert budget["b_pc_bytes"] < 160 * MIB - BUFFER_BYTES
