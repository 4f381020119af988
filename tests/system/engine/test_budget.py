"""B_pc against the kernel: a file that fits is re-read from memory, a larger one is not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkout import CHECKOUT

MIB = 2**20
FILLER = "tests.support.page_cache_filler"
BUFFER_BYTES = 24 * MIB

# Limits of a cgroup and of the one inside it that the process is in: either may decide.
NESTED = [(160 * MIB, 320 * MIB), (320 * MIB, 160 * MIB)]

Fill = Callable[[float], dict[str, Any]]

# Makes a store in the cgroup given, for tensors of so many bytes, and says what its buffers took or why there are none.
OPEN = """
import os, pathlib, sys
from dualblade.plan.budget import anonymous_bytes
from dualblade.config.device import LinkPace, ReadAheadConfig
from dualblade.errors import BudgetError
from dualblade.geometry import KVGeometry
from dualblade.pipeline.link import HostLink, PacedLink, SharedLink
from dualblade.paths.pinned import PinnedBuffer
from dualblade.config.storage import StorageConfig
from dualblade.store import KVStore

PinnedBuffer(1)
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
links = {"host": HostLink(), "shared": SharedLink(), "paced": PacedLink(LinkPace(100.0, "a test"))}
ahead = ReadAheadConfig(pieces=8) if sys.argv[2] == "paced" else None
geometry = KVGeometry.uniform(int(sys.argv[3]), 1, 512, batch_size=4, capacity_tokens=int(sys.argv[4]) // 4096)
before_bytes = anonymous_bytes()
try:
    with KVStore(geometry, StorageConfig("test", "."), link=links[sys.argv[2]], read_ahead=ahead):
        print(anonymous_bytes() - before_bytes)
except BudgetError as error:
    print(error)
"""


@pytest.fixture(params=NESTED, ids=["outer-decides", "inner-decides"])
def fill(request: pytest.FixtureRequest, make_cgroup: Callable[..., Path], disk_path: Path) -> Fill:
    """Measures B_pc in a process two cgroups deep, then reads a file of `ratio` times B_pc three times over."""
    outer_bytes, inner_bytes = request.param
    outer = make_cgroup(outer_bytes)
    inner = make_cgroup(inner_bytes, outer)

    def run(ratio: float) -> dict[str, Any]:
        command = [
            sys.executable,
            "-m",
            FILLER,
            inner,
            disk_path / "kv",
            ratio,
            BUFFER_BYTES,
        ]
        output = subprocess.run([*map(str, command)], cwd=CHECKOUT, check=True, capture_output=True, timeout=120).stdout
        return {**json.loads(output), "decides": min((outer_bytes, outer), (inner_bytes, inner))[1]}

    return run


def test_a_file_within_the_budget_is_reread_from_memory(fill: Fill) -> None:
    filled = fill(0.95)
    cold_bytes, *warm_bytes = filled["device_bytes"]
    assert cold_bytes >= filled["size_bytes"]
    assert warm_bytes == [0, 0]


def test_a_file_beyond_the_budget_is_not(fill: Fill) -> None:
    """No replacement policy can keep more than the budget: the excess is read from the device each time."""
    filled = fill(1.05)
    excess_bytes = filled["size_bytes"] - filled["allocated"]["b_pc_bytes"]
    assert min(filled["device_bytes"]) >= 0.9 * excess_bytes


def test_buffers_count_alike_before_and_after_their_allocation(fill: Fill) -> None:
    filled = fill(0.1)
    announced_bytes = filled["before"]["b_pc_bytes"] - BUFFER_BYTES
    assert announced_bytes == pytest.approx(filled["allocated"]["b_pc_bytes"], abs=2 * MIB)
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


@pytest.mark.parametrize(("link", "n_layers"), [("host", 1), ("shared", 3), ("paced", 3)])
def test_a_store_is_refused_when_its_buffers_do_not_fit_and_takes_what_was_said(
    make_cgroup: Callable[..., Path], link: str, n_layers: int
) -> None:
    def open_store(limit_bytes: int, tensor_bytes: int) -> str:
        command = [sys.executable, "-c", OPEN, make_cgroup(limit_bytes), link, n_layers, tensor_bytes]
        done = subprocess.run(list(map(str, command)), cwd=CHECKOUT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr  # or the kernel has killed it
        return done.stdout.strip()

    taken_bytes = int(open_store(1 << 30, 17 * MIB))
    refusal = open_store(48 * MIB, 17 * MIB)
    said = re.match(r"([\d,]+) bytes of buffers are still to be allocated and .*memory\.\w+ leaves [\d,]+;", refusal)
    assert said, refusal
    assert int(said[1].replace(",", "")) == pytest.approx(taken_bytes, abs=2 * MIB)
