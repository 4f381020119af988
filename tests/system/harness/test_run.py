"""The harness around an engine: results in place, failures told and recorded, nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.support.harness_process import Harness, needs_root_and_cgroup

pytestmark = needs_root_and_cgroup()


@pytest.fixture
def harness(disk_path: Path) -> Harness:
    return Harness(disk_path)


def test_a_point_has_its_result_in_place(harness: Harness) -> None:
    done = harness.run()
    assert done.returncode == 0, done.stderr
    record = harness.only_record()
    files = {"config.yaml", "environment.json", "result.json", "kv_io.parquet", "engine.log"}
    assert {path.name for path in record.folder.iterdir()} == files
    assert yaml.safe_load((record.folder / "config.yaml").read_text())["storage"]["directory"] == "kv"
    assert harness.left_behind() == []


def test_a_run_leaves_no_files_but_results(harness: Harness) -> None:
    harness.run("-m", "memory_gb=3,4")
    assert {path.name for path in harness.folder.iterdir()} == {"results", "kv", "state"}
    assert {path.name for path in harness.results.root.iterdir()} == {"single"}


def test_the_limit_in_force_is_the_process_plus_the_budget(harness: Harness) -> None:
    harness.run("memory_gb=4")
    cgroup = harness.only_record().environment["cgroup"]
    assert cgroup["budget_bytes"] == 3_000_000_000 // 32
    needed_bytes = cgroup["process_bytes"] + cgroup["library_bytes"]
    assert 0 <= needed_bytes + cgroup["budget_bytes"] - cgroup["limit_bytes"] < 4096
    assert cgroup["process_bytes"] > 1 << 20


def test_the_cache_drop_is_proven(harness: Harness) -> None:
    harness.run()
    assert harness.only_record().environment["cache_drop"]["verified"]


def test_provenance_is_recorded(harness: Harness) -> None:
    harness.run()
    environment = harness.only_record().environment
    assert environment["kernel"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert environment["storage"]["file_system"]
    assert environment["testbed"] == "local"
    assert environment["packages"]["torch"]
    steps = environment["harness_s"]
    assert steps["overhead"] == pytest.approx(steps["total"] - 0.5 - 0.3)


def test_a_point_that_is_done_is_not_measured_again(harness: Harness) -> None:
    harness.run()
    first = harness.only_record().environment["started_at"]
    again = harness.run()
    assert again.returncode == 0
    assert "0 measured now" in again.stdout
    assert harness.only_record().environment["started_at"] == first


def test_a_stale_point_is_measured_again_only_when_asked(harness: Harness) -> None:
    harness.run()
    path = harness.only_record().folder / "environment.json"
    path.write_text(json.dumps({**harness.only_record().environment, "kernel": "1.0"}))
    assert "1 stale" in harness.run().stdout
    assert harness.only_record().environment["kernel"] == "1.0"
    assert harness.run("rerun_stale=true").returncode == 0
    assert harness.only_record().environment["kernel"] != "1.0"


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        ("refuse", "the path /nowhere does not exist; give another"),
        ("crash", "RuntimeError: a bug"),
        ("die", "killed by SIGSEGV"),
        ("hang", "within deadline_s=4 s"),
        ("grow:400", "the kernel killed the engine at its memory limit"),
    ],
)
def test_a_failure_is_told_recorded_and_leaves_nothing(harness: Harness, behaviour: str, sentence: str) -> None:
    done = harness.run(f"model.weights={behaviour}", "deadline_s=4")
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert harness.only_record().failed
    assert sentence in harness.only_record().result["error"]
    assert harness.left_behind() == []


def test_a_sweep_goes_on_after_a_failure_and_tries_it_again(harness: Harness) -> None:
    sweep = ["-m", "model.weights=grow:34", "memory_gb=2,12,13"]
    done = harness.run(*sweep)
    assert done.returncode == 1
    assert "1 failed, 2 done (3 measured now)" in done.stdout
    assert sorted(record.failed for record in harness.records()) == [False, False, True]
    again = harness.run(*sweep)
    assert again.returncode == 1
    assert "1 failed, 2 done (1 measured now)" in again.stdout


def test_a_run_whose_process_took_the_page_cache_back_has_no_result(harness: Harness) -> None:
    done = harness.run("model.weights=grow:34", "memory_gb=4")
    assert done.returncode == 1
    assert "out of 93,750,000 for page cache" in harness.only_record().result["error"]


def test_a_limit_below_the_process_is_refused_with_numbers(harness: Harness) -> None:
    done = harness.run("memory_gb=0.9")
    assert done.returncode == 1
    record = harness.only_record()
    cgroup = record.environment["cgroup"]
    needed = cgroup["process_bytes"] + cgroup["library_bytes"]
    assert f"the process needs {needed:,} bytes" in record.result["error"]
    assert "-3,125,000 for I/O" in record.result["error"]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["variant=foo"], "variant=foo is not known; use one of baseline"),
        (["scale=7"], "scale=7 does not divide the batch of 32"),
        (["memory=4"], "did you mean memory_gb?"),
        (["storage.directory=/dev/shm/kv"], "lies on tmpfs"),
        (["storage.directory=/proc/kv"], "cannot make a folder in storage.directory=/proc/kv"),
        (["storage.read_ahead_kb=128", "storage.directory=/sys/kv"], "cannot make a folder"),
        (["scale=1", "workload.prompt_tokens=500000000"], "bytes free and this run needs"),
    ],
)
def test_a_users_mistake_is_answered_by_a_sentence(harness: Harness, overrides: list[str], sentence: str) -> None:
    done = harness.run(*overrides)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert harness.left_behind() == []


def test_the_real_engine_measures_a_point(harness: Harness) -> None:
    done = harness.run("variant=dual_blade", "budget_ratio=0.6", "model.n_layers=8", real=True)
    assert done.returncode == 0, done.stderr
    record = harness.only_record()
    plan = record.result["plan"]
    assert 0 < plan["n1"] * plan["kpu_bytes"] <= record.environment["cgroup"]["budget_bytes"]
    assert record.result["hit_rate"]["decode"] == pytest.approx(plan["n1"] / 8, abs=0.01)
    assert str(record.environment["cgroup"]["path"]) in record.result["budget"]["limited_by"]
    assert harness.left_behind() == []
