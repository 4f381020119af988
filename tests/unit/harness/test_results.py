"""The results folder: what counts as a result, and when a point has one."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from experiments.machine.environment import fingerprint
from experiments.machine.journal import Journal
from experiments.points.point import Point
from experiments.points.sweep import compose_points
from experiments.results_folder import ResultsFolder, State, StoredResult

ENVIRONMENT = {
    "code_hash": "abc",
    "kernel": "6.8",
    "storage": {"model": "990 PRO", "serial": "S7", "file_system": "ext4"},
}


@functools.cache
def point(*overrides: str) -> Point:
    (config,) = compose_points(overrides)
    return Point.from_config(config)


@pytest.fixture
def results(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path / "results")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.json")


def put(results: ResultsFolder, experiment: str, of: Point, status: str = "done", **environment: Any) -> Path:
    folder = results.folder(experiment, of)
    folder.mkdir(parents=True)
    content = {**ENVIRONMENT, "config_hash": of.config_hash, **environment}
    (folder / "environment.json").write_text(json.dumps(content))
    (folder / "result.json").write_text(json.dumps({"status": status, "error": None}))
    return folder


def found(results: ResultsFolder, of: Point) -> StoredResult:
    record = results.find(of)
    assert record is not None
    return record


def test_a_point_has_the_result_that_another_sweep_made(results: ResultsFolder) -> None:
    folder = put(results, "e2e_latency", point())
    assert found(results, point()).folder == folder
    assert results.find(point("repetition=1")) is None
    assert results.find(point("memory_gb=5")) is None


def test_a_result_that_is_done_comes_before_one_that_failed(results: ResultsFolder) -> None:
    put(results, "a_sweep", point(), status="failed")
    folder = put(results, "b_sweep", point())
    assert found(results, point()).folder == folder


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, State.DONE),
        ({"kernel": "6.9"}, State.STALE),
        ({"code_hash": "abd"}, State.STALE),
        ({"storage": {"model": "990 PRO", "serial": "S8", "file_system": "ext4"}}, State.STALE),
        ({"code_revision": "another commit, the same engine"}, State.DONE),
    ],
)
def test_a_result_is_stale_when_engine_kernel_or_device_changed(
    results: ResultsFolder, change: dict[str, Any], state: State
) -> None:
    put(results, "sweep", point(), **change)
    assert found(results, point()).state(fingerprint(ENVIRONMENT)) is state


def test_a_failed_result_stays_failed_whatever_changed(results: ResultsFolder) -> None:
    put(results, "sweep", point(), status="failed", kernel="6.9")
    assert found(results, point()).state(fingerprint(ENVIRONMENT)) is State.FAILED


@pytest.mark.parametrize("damaged", ["result.json", "environment.json"])
@pytest.mark.parametrize(
    "content", ['{"status": ', "[]", "3", "null", '"done"', "\xff", '{"a":' * 100_000], ids=range(7)
)
def test_a_damaged_result_is_none_and_the_others_are_found(results: ResultsFolder, damaged: str, content: str) -> None:
    sound = put(results, "b_sweep", point())
    folder = put(results, "a_sweep", point())
    (folder / damaged).write_text(content, encoding="latin-1")
    assert found(results, point()).folder == sound
    assert [record.folder for record in results.records()] == [sound]


@pytest.mark.parametrize("section", ["storage", "guest", "harness_s"])
def test_a_section_that_is_none_is_damage(results: ResultsFolder, section: str) -> None:
    put(results, "sweep", point(), **{section: []})
    assert results.find(point()) is None


def test_a_result_of_another_configuration_under_the_same_name_is_none(results: ResultsFolder) -> None:
    put(results, "sweep", point(), config_hash="another")
    assert results.find(point()) is None


def test_a_result_is_nowhere_before_it_is_whole(results: ResultsFolder, journal: Journal) -> None:
    with results.workspace("sweep", point(), journal) as workspace:
        workspace.write_json("environment.json", {**ENVIRONMENT, "config_hash": point().config_hash})
        workspace.write_json("result.json", {"status": "done"})
        assert results.find(point()) is None
        assert list(results.records()) == []
        workspace.publish()
    assert found(results, point()).folder == results.folder("sweep", point())


def test_what_is_not_published_is_gone(results: ResultsFolder, journal: Journal) -> None:
    with pytest.raises(KeyboardInterrupt), results.workspace("sweep", point(), journal) as workspace:
        workspace.write_config({"scale": 8})
        raise KeyboardInterrupt
    assert not [path for path in results.root.rglob("*") if path.is_file()]


def test_a_new_result_takes_the_place_of_the_old_one(results: ResultsFolder, journal: Journal) -> None:
    old = put(results, "sweep", point(), status="failed")
    (old / "engine.log").write_text("of the old one")
    with results.workspace("sweep", point(), journal) as workspace:
        workspace.write_json("environment.json", {**ENVIRONMENT, "config_hash": point().config_hash})
        workspace.write_json("result.json", {"status": "done"})
        workspace.publish()
    assert sorted(path.name for path in old.iterdir()) == ["environment.json", "result.json"]
    assert [path.name for path in old.parent.iterdir()] == [old.name]
