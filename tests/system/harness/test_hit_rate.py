"""The paper's central effect on the real mechanism: what a run reports under a memory limit is what the disk read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from dualblade.config.run import RunConfig
from experiments.machine.dirty_pages import held_to_budget
from experiments.machine.journal import Journal
from tests.support.checkout import CHECKOUT

VARIANTS = {
    "baseline": {"name": "baseline", "knob": "all", "overflow": "leave"},
    "cachepolicy_only": {"name": "cachepolicy_only", "knob": "budget", "overflow": "evict"},
    "nvme_direct_only": {"name": "nvme_direct_only", "knob": 0, "overflow": "direct"},
    "dual_blade": {"name": "dual_blade", "knob": "budget", "overflow": "direct"},
}


@dataclass(frozen=True)
class Measured:
    """A run: its result.json, its operations, and what `counter` counted from the moment its limit was set."""

    result: dict[str, Any]
    operations: Any
    counted: int

    @property
    def device_read_bytes(self) -> int:
        return int(pc.sum(self.operations["device_read_bytes"]).as_py())


@pytest.fixture(scope="module", autouse=True)
def warm_libraries() -> None:
    """Read the libraries' pages in, outside any cgroup: other tests drop caches, and pages are read when first used."""
    for variant in ("baseline", "nvme_direct_only"):
        with tempfile.TemporaryDirectory(prefix=".test-", dir=CHECKOUT) as folder:
            config = configuration(Path(folder), variant, scale=32) | {"decode_iterations": 1}
            Path(folder, "config.yaml").write_text(yaml.safe_dump(config))
            command = [sys.executable, "-m", "dualblade", folder]
            subprocess.run(command, cwd=CHECKOUT, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def disk_counter(disk_path: Path) -> Iterator[tuple[Path, Callable[[], int]]]:
    """A blkio cgroup (v1), and what its processes have read from the disk under `disk_path`, by whichever path."""
    base = Path("/sys/fs/cgroup/blkio")
    if not (base / "blkio.throttle.io_service_bytes").exists():
        pytest.skip("no blkio controller of cgroup v1 counts the reads of one group here")
    device = os.stat(disk_path).st_dev
    group = base / f"dualblade-test-{os.getpid()}"
    group.mkdir()
    # The kernel counts for a group that has a rule (block/blk-throttle.h, blk_throtl_bio); this one allows a PB/s.
    rule = f"{os.major(device)}:{os.minor(device)} {10**15}"
    (group / "blkio.throttle.read_bps_device").write_text(rule)

    def read_bytes() -> int:
        lines = (group / "blkio.throttle.io_service_bytes").read_text().splitlines()
        wanted = f"{os.major(device)}:{os.minor(device)} Read "
        return sum(int(line.split()[2]) for line in lines if line.startswith(wanted))

    yield group, read_bytes
    group.rmdir()


def configuration(folder: Path, variant: str, scale: int) -> dict[str, Any]:
    """The paper's workload; at scale 16 it is two sequences, rows of 16 KiB and 541 MB of KV in 32 layers."""
    model = {"n_layers": 32, "n_heads": 32, "n_kv_heads": 32, "head_dim": 128, "hidden_size": 4096}
    return {
        "variant": VARIANTS[variant],
        "model": {"name": "opt_6_7b", "intermediate_size": 16384, "mlp_matrices": 2} | model,
        "workload": {"name": "paper", "batch_size": 32, "prompt_tokens": 512, "generated_tokens": 32},
        "storage": {"name": "file", "directory": str(folder), "checksum": True},
        "device": {"name": "host", "gpu": None},
        "scale": scale,
        "decode_iterations": 4,
    }


def measure(
    folder: Path,
    groups: list[Path],
    variant: str,
    ratio: float,
    scale: int = 16,
    counter: Callable[[], int] = int,
) -> Measured:
    """One run in a memory cgroup, whose limit is what the process needs and `ratio` of the KV working set more."""
    config = configuration(folder, variant, scale)
    run_dir = Path(tempfile.mkdtemp(dir=folder))
    (run_dir / "config.yaml").write_text(yaml.safe_dump(config))
    engine = subprocess.Popen(
        [sys.executable, "-m", "dualblade", str(run_dir), "--handshake"],
        preexec_fn=lambda: [(group / "cgroup.procs").write_text("0") for group in groups],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
    )
    assert engine.stdout and engine.stdin
    ready = json.loads(engine.stdout.readline())
    limit = ready["process_bytes"] + int(ratio * RunConfig.from_mapping(config).geometry().working_set_bytes)
    v1 = groups[0] / "memory.limit_in_bytes"
    (v1 if v1.exists() else groups[0] / "memory.max").write_text(str(limit))
    before = counter()
    with held_to_budget(limit - ready["process_bytes"], 1 if v1.exists() else 2, Journal(run_dir / "journal.json")):
        engine.stdin.write("go\n")
        engine.stdin.close()
        events = [json.loads(line) for line in engine.stdout]
    assert engine.wait() == 0
    assert events[-1] == {"event": "done"}
    result = json.loads((run_dir / "result.json").read_text())
    return Measured(result, pq.read_table(run_dir / "kv_io.parquet"), counter() - before)


@pytest.fixture
def run(disk_path: Path, make_cgroup: Callable[..., Path]) -> Callable[[str, float], Measured]:
    return lambda variant, ratio: measure(disk_path, [make_cgroup(8 << 30)], variant, ratio)


@pytest.mark.parametrize(
    ("variant", "ratio"),
    [("baseline", 0.8), ("baseline", 1.1), ("cachepolicy_only", 0.6), ("nvme_direct_only", 0.5), ("dual_blade", 0.5)],
)
def test_reported_reads_are_those_of_the_disk(
    disk_path: Path,
    make_cgroup: Callable[..., Path],
    disk_counter: tuple[Path, Callable[[], int]],
    variant: str,
    ratio: float,
) -> None:
    group, disk_read_bytes = disk_counter
    measured = measure(disk_path, [make_cgroup(8 << 30), group], variant, ratio, counter=disk_read_bytes)
    asked_bytes = measured.result["bytes"]["decode"]["asked_read"]
    assert measured.device_read_bytes == pytest.approx(measured.counted, abs=0.02 * asked_bytes)


def test_the_baseline_thrashes_below_its_working_set_and_hits_above(
    disk_path: Path, make_cgroup: Callable[..., Path]
) -> None:
    """At a scale where the working set dwarfs what else decides in the LRU lists, such as writeback still under way."""
    below, above = (
        measure(disk_path, [make_cgroup(8 << 30)], "baseline", ratio, scale=8).result for ratio in (0.95, 1.06)
    )
    assert below["hit_rate"]["decode"] < 0.02
    assert above["hit_rate"]["decode"] > 0.99


@pytest.mark.parametrize("ratio", [0.3, 0.7])
def test_dual_blade_hits_for_just_the_layers_that_it_planned_for(
    run: Callable[[str, float], Measured], ratio: float
) -> None:
    result = run("dual_blade", ratio).result
    plan = result["plan"]
    planned_bytes = plan["n1"] * plan["kpu_bytes"]
    assert planned_bytes <= result["budget"]["b_pc_bytes"] < planned_bytes + 3 * plan["kpu_bytes"]
    assert result["hit_rate"]["decode"] == pytest.approx(plan["n1"] / plan["n_layers"], abs=0.01)
    assert plan["layers"] == ["page_cache"] * plan["n1"] + ["direct"] * (32 - plan["n1"])


def test_evicted_layers_miss_and_kept_ones_hit(run: Callable[[str, float], Measured]) -> None:
    result = run("cachepolicy_only", 0.6).result
    assert 0 < result["plan"]["n1"] < 32
    assert result["hit_rate"]["decode"] == pytest.approx(result["plan"]["n1"] / 32, abs=0.02)
    assert result["eviction"]["asked_bytes"] > 0


def test_the_direct_path_does_not_depend_on_memory(run: Callable[[str, float], Measured]) -> None:
    result = run("nvme_direct_only", 0.02).result
    assert result["hit_rate"]["decode"] == pytest.approx(0, abs=0.001)
    assert result["bytes"]["decode"]["device_read"] >= result["bytes"]["decode"]["asked_read"]
    assert result["io_mode"]["page_cache"] is None
