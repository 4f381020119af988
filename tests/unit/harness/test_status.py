"""`experiments.status`: what is done, failed, stale and to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import status
from experiments.machine.environment import FINGERPRINT, current_fingerprint
from experiments.points.point import Point
from experiments.points.sweep import compose_points
from experiments.results_folder import ResultsFolder

SWEEP = ["variant=baseline", "memory_gb=2,3,4,5,6"]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultsFolder:
    """Of five points two done, one stale, one failed, one not measured; in the current folder, as a user has it."""
    monkeypatch.chdir(tmp_path)
    results = ResultsFolder(Path("results"))
    points = [Point.from_config(config) for config in compose_points(SWEEP)]
    for point, kernel, state in zip(
        points, [None, None, "1.0", None], ["done", "done", "done", "failed"], strict=False
    ):
        put(results, point, kernel, state)
    return results


def put(results: ResultsFolder, point: Point, kernel: str | None, state: str) -> None:
    current = current_fingerprint(Path.cwd())
    environment = {name: current[name] for name in FINGERPRINT}
    environment |= {"storage": storage(), "config_hash": point.config_hash, "harness_s": {"total": 60}}
    environment["kernel"] = kernel or environment["kernel"]
    folder = results.folder("single", point)
    folder.mkdir(parents=True)
    (folder / "environment.json").write_text(json.dumps(environment))
    (folder / "result.json").write_text(json.dumps({"status": state, "error": "the disk is full"}))


def storage() -> dict[str, str | None]:
    model, device, file_system = current_fingerprint(Path.cwd())["device"]
    return {"model": model, "serial": device, "file_system": file_system}


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    assert status.main(list(arguments)) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.usefixtures("results")
def test_the_points_of_a_sweep_by_variant(capsys: pytest.CaptureFixture[str]) -> None:
    head, baseline, total, *_ = lines(capsys, *SWEEP)
    assert " ".join(head) == "to do done stale failed"
    assert baseline == ["baseline", "1", "2", "1", "1"]
    assert total == ["total", "1", "2", "1", "1"]


@pytest.mark.usefixtures("results")
def test_failures_are_told_and_the_time_that_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    *_, failure, left = (" ".join(words) for words in lines(capsys, *SWEEP))
    assert failure == "failed: baseline 5gb rep 0: the disk is full"
    assert left == "about 2 min to measure 2 points"


@pytest.mark.usefixtures("results")
def test_without_a_sweep_all_that_there_is_by_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    _, single, *_ = lines(capsys)
    assert single == ["single", "0", "2", "1", "1"]


def test_an_experiment_is_named_without_its_plus(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    counted = lines(capsys, "experiment=default")
    assert int(counted[-1][1]) == len(compose_points(["+experiment=default"]))


def test_an_unknown_experiment_is_answered_by_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main(["experiment=nix"]) == 1
    error = capsys.readouterr().err
    assert "experiment=nix is not known; use one of " in error
    assert "default, " in error
