"""Every command of the analysis answers what the system refuses by one sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import foreign_trace, notebooks
from analysis.drawing import layout
from analysis.figures.__main__ import main as figures
from analysis.report import __main__ as report
from tests.support.analysis_results import write_sweep
from tests.unit.traces.test_formats import BLKPARSE

Main = Callable[[list[str]], int]


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep and a trace of another program, in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_sweep(Path("results"), limits_gb=[2.0, 4.0])
    Path("t.txt").write_text(BLKPARSE)


FOREIGN = ["t.txt", "--format", "blkparse"]


@pytest.mark.parametrize(
    ("main", "arguments"),
    [(foreign_trace.main, FOREIGN), (figures, []), (report.main, []), (notebooks.main, [])],
    ids=["foreign_trace", "figures", "report", "notebooks"],
)
@pytest.mark.parametrize("out", ["file", "file/below"])
def test_a_file_in_the_place_of_a_folder(
    main: Main, arguments: list[str], out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("of somebody")
    assert main([*arguments, "--out", out]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "file" in said and "name folders that can be read and written" in said
    assert Path("file").read_text() == "of somebody"


@pytest.mark.parametrize(
    ("main", "arguments"), [(foreign_trace.main, FOREIGN), (figures, [])], ids=["foreign", "figures"]
)
def test_a_disk_that_is_full(
    main: Main, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> list[Path]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(layout, "save", full)
    assert main(arguments) == 1
    assert "No space left on device; name folders" in capsys.readouterr().err
