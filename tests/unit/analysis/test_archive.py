"""An archive of results is read as the folder that was packed into it."""

from __future__ import annotations

import io
import itertools
import tarfile
from pathlib import Path

import pandas as pd
import pytest

from analysis import default_sweep
from analysis.figures.__main__ import main as figures
from analysis.report.__main__ import main as report
from analysis.results.archive import unpacked
from analysis.results.documents import ResultsError
from analysis.results.load import find_runs, load
from tests.support import sample
from tests.support.analysis_results import write_run


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of four runs, in a folder of its own."""
    for variant, limit_gb in itertools.product(["baseline", "dual_blade"], [2.0, 4.0]):
        point_hash = {"config_hash": f"{variant}-{limit_gb}"}  # its usual one is a path, which packing shortens
        write_run(tmp_path / "packed", variant, limit_gb, environment=point_hash)
    path = tmp_path / "results" / "four.tar.xz"
    path.parent.mkdir()
    sample.main(path, tmp_path / "packed")
    return path


def test_runs_of_an_archive_are_those_of_the_folder(tmp_path: Path, archive: Path) -> None:
    expected = load(tmp_path / "packed")
    for place in (archive, archive.parent):
        results = load(place)
        folder, runs = results.runs["folder"], results.runs.drop(columns="folder")
        pd.testing.assert_frame_equal(runs, expected.runs.drop(columns="folder"))
        pd.testing.assert_frame_equal(results.iterations, expected.iterations)
        assert all((path / "result.json").is_file() for path in folder)


def test_runs_beside_an_archive_count_with_its_own(archive: Path) -> None:
    again = write_run(archive.parent, "baseline", 2.0)
    other = write_run(archive.parent, "baseline", 6.0)
    runs = find_runs(archive.parent)
    assert len(runs) == 5
    assert [runs[f"default/baseline-{limit}/rep-0"] for limit in (2.0, 6.0)] == [again, other]


def test_the_same_runs_give_the_same_bytes(tmp_path: Path, archive: Path) -> None:
    sample.main(tmp_path / "again.tar.xz", archive)
    assert (tmp_path / "again.tar.xz").read_bytes() == archive.read_bytes()


def test_only_files_of_runs_are_unpacked(tmp_path: Path) -> None:
    names = ("../outside", "/tmp/outside", "default/p/rep-0/../../../outside", ".hidden/p/rep-0/a", "a/b/rep-0/c")
    with tarfile.open(tmp_path / "odd.tar.xz", "w:xz") as odd:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 1
            odd.addfile(entry, io.BytesIO(b"x"))
        link = tarfile.TarInfo("a/b/rep-0/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        odd.addfile(link)
    folder = unpacked(tmp_path / "odd.tar.xz")
    assert [path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()] == ["a/b/rep-0/c"]


def test_a_damaged_archive_is_one_sentence(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = archive.read_bytes()
    for damaged in (b"", b"no archive", content[: len(content) // 2], content[:100] + bytes(100) + content[200:]):
        path = archive.with_name(f"damaged-{len(damaged)}-{damaged[:1]!r}.tar.xz")
        path.write_bytes(damaged)
        with pytest.raises(ResultsError, match="is damaged"):
            load(path)
        assert figures(["--results", str(path)]) == 1
        assert capsys.readouterr().err.count("\n") == 1


def test_what_an_archive_lacks_is_measured_into_the_default_folder(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(archive.parent)
    assert default_sweep.command("thrashing", archive) == "python -m experiments.run +experiment=thrashing"
    assert report(["--results", archive.name]) == 0
    page = (archive.parent / "report" / "index.html").read_text()
    assert "default/baseline-2.0/rep-0" in page and "rep-0/result.json" not in page
    empty = archive.with_name("empty.tar.xz")
    tarfile.open(empty, "w:xz").close()
    assert figures(["--results", empty.name]) == 1
    assert "holds nothing to draw" in capsys.readouterr().err
