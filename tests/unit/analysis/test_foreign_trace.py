"""Traces of others are drawn, and what cannot be drawn is answered by a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from analysis.drawing import layout
from analysis.foreign_trace import main, read
from tests.unit.traces.test_formats import BIOSNOOP, BLKPARSE, CHEOPS


def test_both_figures_are_files(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(BLKPARSE)
    assert main([str(tmp_path / "t.txt"), "--format", "blkparse", "--out", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == {"lba_pattern.png", "disk_throughput.png"}
    assert "read as blkparse" in (tmp_path / "out/lba_pattern.md").read_text()


@pytest.mark.parametrize(
    ("text", "source", "n"), [(BLKPARSE, "blkparse", 2), (BIOSNOOP, "biosnoop", 2), (CHEOPS, "cheops25", 2)]
)
def test_both_figures_are_drawn_of_every_format(
    tmp_path: Path, text: str, source: str, n: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laid out, but not written to files, which is what takes the time."""
    captions: dict[str, str] = {}

    def save(figure: Figure, stem: Path, caption: str) -> list[Path]:
        figure.draw_without_rendering()
        captions[stem.name] = caption
        return []

    monkeypatch.setattr(layout, "save", save)
    (tmp_path / "t.txt").write_text(text)
    assert main([str(tmp_path / "t.txt"), "--format", source, "--out", str(tmp_path / "out")]) == 0
    assert captions.keys() == {"lba_pattern", "disk_throughput"}
    assert f"{n} commands" in capsys.readouterr().out
    assert f"read as {source}" in captions["lba_pattern"]


def test_a_command_without_completion_counts_at_its_issue(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(CHEOPS)
    commands, _ = read(tmp_path / "t.txt", "cheops25")
    assert (commands["complete_ns"] == commands["issue_ns"]).all()


@pytest.mark.parametrize(
    ("text", "sentence"), [("hello\n", "give --format"), ("", "give --format")], ids=["no trace", "empty"]
)
def test_what_is_no_trace_is_told(tmp_path: Path, text: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.txt").write_text(text)
    assert main([str(tmp_path / "t.txt"), "--out", str(tmp_path / "out")]) == 1
    assert sentence in capsys.readouterr().err
    (tmp_path / "t.txt").write_text("Attaching 1 probe...\n")
    assert main([str(tmp_path / "t.txt"), "--format", "cheops25"]) == 1
    assert "holds no reads or writes" in capsys.readouterr().err
