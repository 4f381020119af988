"""tests/data: a small sample of real results for figures and report. It names no path of where it was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from analysis.drawing import layout
from analysis.figures.__main__ import main as figures
from analysis.figures.registry import FIGURES
from analysis.report.__main__ import main as report
from analysis.results.load import find_runs, load
from tests.support.checkout import SAMPLE

MAX_BYTES = 4 * 10**6


def test_every_run_of_it_can_be_used() -> None:
    results = load(SAMPLE)
    assert results.skipped == ()
    assert len(results.runs) + len(results.io) == len(find_runs(SAMPLE)) >= 28
    assert set(results.runs["environment.code_dirty"].dropna()) == {False}


def test_it_is_small_and_names_no_place() -> None:
    packed = [path for path in SAMPLE.rglob("*") if path.is_file()]
    assert len(packed) <= 3 and sum(path.stat().st_size for path in packed) < MAX_BYTES
    for folder in find_runs(SAMPLE).values():
        for path in (folder / "config.yaml", folder / "environment.json", folder / "result.json"):
            assert not re.search(r"[\s\"'](/root|/home|/tmp|/work|/sys/fs)", path.read_text()), path


def test_figures_and_report_are_made_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def save(figure: object, stem: Path, caption: str) -> list[Path]:
        drawn.append(stem.name)
        return [stem.with_suffix(".png")]

    monkeypatch.setattr(layout, "save", save)
    assert figures(["--results", str(SAMPLE), "--out", str(tmp_path)]) == 0
    assert sorted(drawn) == sorted(FIGURES)
    assert report(["--results", str(SAMPLE), "--out", str(tmp_path)]) == 0
    verdicts = {name: entry["verdict"] for name, entry in json.loads((tmp_path / "claims.json").read_text()).items()}
    assert verdicts["C4"] == verdicts["C9"] == "reproduced"
