"""Loading a results folder: what is there arrives, what is not fit is named and costs nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.results.load import load
from tests.support.analysis_results import write_run, write_sweep


def test_every_run_arrives_with_its_provenance(tmp_path: Path) -> None:
    write_sweep(tmp_path, variants=["baseline", "dual_blade"], limits_gb=[2.0, 4.0], repetitions=3)
    results = load(tmp_path)
    assert results.skipped == ()
    assert sorted(results.runs["config.repetition"].unique()) == [0, 1, 2]
    assert len(results.runs) == 2 * 2 * 3
    run = results.runs.loc["default/dual_blade-4.0/rep-2"]
    written = json.loads((tmp_path / "default/dual_blade-4.0/rep-2/result.json").read_text())
    assert run["result.prefill_s"] == written["prefill_s"]
    assert run["config.variant.name"] == "dual_blade"
    assert run["environment.cgroup.version"] == 1


def test_iterations_are_one_row_each_and_count_from_one(tmp_path: Path) -> None:
    write_run(tmp_path, result={"decode_s": [0.9, 0.5, 0.4], "hit_rate.decode_per_iteration": [0.1, 0.2, 0.3]})
    iterations = load(tmp_path).iterations
    assert iterations["iteration"].tolist() == [1, 2, 3]
    assert iterations["decode_s"].tolist() == [0.9, 0.5, 0.4]
    assert iterations["hit_rate"].tolist() == [0.1, 0.2, 0.3]


def edit_result(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def damage(run_dir: Path) -> None:
        result = json.loads((run_dir / "result.json").read_text())
        change(result)
        (run_dir / "result.json").write_text(json.dumps(result))

    return damage


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no result": (lambda run: (run / "result.json").unlink(), "holds no result.json"),
    "no environment": (lambda run: (run / "environment.json").unlink(), "holds no environment.json"),
    "empty folder": (lambda run: [path.unlink() for path in run.iterdir()], "holds no result.json"),
    "cut off": (lambda run: (run / "result.json").write_text('{"schema": 1, "sta'), "result.json is damaged"),
    "empty file": (lambda run: (run / "result.json").write_text(""), "result.json is damaged"),
    "binary": (lambda run: (run / "result.json").write_bytes(b"\xff\xfe\x00"), "result.json is damaged"),
    "not a mapping": (lambda run: (run / "result.json").write_text("[1]"), "holds list, expected a mapping"),
    "bad yaml": (lambda run: (run / "config.yaml").write_text("a: [1"), "config.yaml is damaged"),
    "empty yaml": (lambda run: (run / "config.yaml").write_text(""), "config.yaml holds NoneType"),
    "a folder": (lambda run: [(run / "result.json").unlink(), (run / "result.json").mkdir()], "cannot be read"),
    "other schema": (edit_result(lambda result: result.update(schema=99)), "schema 99"),
    "failed": (
        edit_result(lambda result: result.update(status="failed", error="the disk is full, free 3 GB")),
        "failed: the disk is full, free 3 GB",
    ),
    "wrong type": (edit_result(lambda result: result.update(prefill_s="1.5")), "prefill_s in result.json is '1.5'"),
    "missing field": (edit_result(lambda result: result.pop("prefill_s")), "prefill_s in result.json is None"),
    "truth for number": (edit_result(lambda result: result.update(prefill_s=True)), "prefill_s in result.json is True"),
    "not finite": (edit_result(lambda result: result.update(prefill_s=float("nan"))), "expected a finite number"),
    "gap in a list": (
        edit_result(lambda result: result.update(decode_s=[None] * 8)),
        "expected a list of finite numbers",
    ),
    "uneven lists": (edit_result(lambda result: result.update(decode_s=[0.5])), "1 decode latencies and 8 hit rates"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_unusable_run_is_named_in_one_sentence_and_costs_no_other(tmp_path: Path, damage: str) -> None:
    write_run(tmp_path, "baseline", 2.0)
    bad = write_run(tmp_path, "baseline", 4.0)
    write_run(tmp_path, "dual_blade", 4.0)
    apply, cause = DAMAGES[damage]
    apply(bad)
    results = load(tmp_path)
    assert list(results.runs.index) == ["default/baseline-2.0/rep-0", "default/dual_blade-4.0/rep-0"]
    assert set(results.iterations["run"]) == set(results.runs.index)
    (sentence,) = results.skipped
    assert str(bad) in sentence
    assert cause in sentence
    assert "\n" not in sentence


def test_an_unfinished_run_is_named(tmp_path: Path) -> None:
    finished = write_run(tmp_path)
    shutil.copytree(finished, finished.with_name(".rep-1.4711"))
    results = load(tmp_path)
    assert len(results.runs) == 1
    (sentence,) = results.skipped
    assert ".rep-1.4711" in sentence and "not finished" in sentence


def write_again(results_dir: Path, year: int, experiment: str, **environment: Any) -> None:
    """One point, measured in another year."""
    always = {"config_hash": "same", "started_at": f"{year}-01-01T00:00:00+00:00"}
    write_run(results_dir, experiment=experiment, environment=always | environment)


def test_of_a_point_measured_twice_the_newest_counts(tmp_path: Path) -> None:
    for year, experiment in ((2001, "a"), (2003, "b"), (2002, "c")):
        write_again(tmp_path, year, experiment, kernel=f"6.0.{year}")
    results = load(tmp_path)
    assert [run.split("/")[0] for run in results.runs.index] == ["b"]
    assert len(results.skipped) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"cpu": "another"},
        {"emulated": True},
        {"guest": {"accelerator": "kvm"}},
        {"storage.serial": "S2"},
        {"kernel": "6.1-synthetic"},
        {"lru_generation": "0x0007"},
    ],
    ids=str,
)
def test_a_point_of_two_machines_counts_on_both(tmp_path: Path, other: dict[str, Any]) -> None:
    write_again(tmp_path, 2001, "here")
    write_again(tmp_path, 2002, "there", **other)
    results = load(tmp_path)
    assert len(results.runs) == 2 and results.skipped == ()


def test_foreign_files_are_no_runs(tmp_path: Path) -> None:
    finished = write_run(tmp_path)
    shutil.copytree(finished.parent, tmp_path / ".hydra" / "point")
    (finished.parent / "rep-notes").write_text("a file")
    (tmp_path / "README").write_text("a file")
    (tmp_path / "default" / "other").mkdir()
    assert len(load(tmp_path).runs) == 1


def test_a_folder_without_runs_gives_empty_frames(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        results = load(folder)
        assert results.runs.empty and results.iterations.empty and results.skipped == ()


@pytest.mark.parametrize(("other_s", "kept"), [(0.5, True), (0.57, True), (0.6, False), (-1.5, False)])
def test_a_phase_whose_parts_are_not_its_wall_time_is_refused(tmp_path: Path, other_s: float, kept: bool) -> None:
    parts = {"wall_s": 4.0, "compute_s": 1.0, "storage_stall_s": 2.0, "link_stall_s": 0.5, "other_s": other_s}
    write_run(tmp_path, result={"phases": {"prefill": parts | {"other_s": 0.5}, "decode": parts}})
    results = load(tmp_path)
    assert (len(results.runs) == 1) is kept
    if not kept:
        (sentence,) = results.skipped
        assert f"phases.decode in result.json has parts of {3.5 + other_s:g} s in all" in sentence


def test_phases_of_which_only_some_parts_are_known_are_taken_as_they_are(tmp_path: Path) -> None:
    write_run(tmp_path, result={"phases": {"decode": {"wall_s": 4.0, "storage_stall_s": 2.0}}})
    assert load(tmp_path).skipped == ()
