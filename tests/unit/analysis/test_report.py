"""`python -m analysis.report`: one page that holds everything and needs nothing, and the same for programs."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from analysis import default_sweep
from analysis.figures.registry import FIGURES
from analysis.report.__main__ import main
from tests.support.analysis_results import write_io, write_run, write_sweep
from tests.support.device_traces import write_traced_run

VERDICTS = {"reproduced", "direction only", "contradicted", "not testable here"}
PNG = b"\x89PNG\r\n\x1a\n"
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """What a browser would follow: ids, links, images; and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.images: list[str] = []
        self.sources: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [value for value in [given.get("id")] if value]
        self.links += [value for value in [given.get("href")] if value]
        self.sources += [value for name in ("src", "srcset", "data", "action") if (value := given.get(name))]
        self.images += [value for value in [given.get("src")] if value and tag == "img"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(autouse=True)
def empty_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A report on a synthetic sweep, with one run that cannot be read."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_sweep(Path("results"), limits_gb=[2.0, 4.0, 6.0, 8.0, 11.0], repetitions=2)
        for variant in ("baseline", "dual_blade"):
            write_traced_run(Path("results"), variant)
        for path in ("ext4_buffered", "ext4_direct", "io_uring_cmd"):
            write_io(Path("results"), path)
        write_run(Path("results"), "baseline", 5.0, result={"status": "failed", "error": "<b>the disk</b> is full"})
        assert main([]) == 0
        yield folder / "report"


@pytest.fixture(scope="module")
def page(report: Path) -> Page:
    return Page((report / "index.html").read_text())


def test_the_page_asks_for_nothing_from_elsewhere(page: Page) -> None:
    assert page.open == []
    assert all(source.startswith("data:") for source in page.sources)
    assert not [link for link in page.links if "//" in link or link.startswith("/")]


def test_every_link_leads_somewhere(report: Path, page: Page) -> None:
    assert [name for name, count in Counter(page.ids).items() if count > 1] == []
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids
        elif not link.startswith("data:"):
            assert (report / link).is_file()


def test_figures_are_images_in_the_page(page: Page) -> None:
    assert len(page.images) >= 7
    for image in page.images:
        kind, _, content = image.partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(content).startswith(PNG)
    assert {
        "figure-thrashing",
        "figure-e2e_latency",
        "figure-hit_rate",
        "figure-io_paths",
        "figure-disk_throughput",
    } <= set(page.ids)


def test_claims_are_all_there_and_agree_with_the_json(report: Path, page: Page) -> None:
    entries = json.loads((report / "claims.json").read_text())
    assert [f"C{number}" for number in range(1, 23)] == list(entries)
    assert set(entries) <= set(page.ids)
    text = (report / "index.html").read_text()
    for verdict in VERDICTS:
        count = sum(entry["verdict"] == verdict for entry in entries.values())
        assert f"<b>{count}</b>" in text


def test_from_a_verdict_one_gets_to_its_runs(report: Path, page: Page) -> None:
    entries = json.loads((report / "claims.json").read_text())
    assert entries["C4"]["run_folders"]
    for run in entries["C4"]["run_folders"]:
        assert (report.parent / "results" / run / "result.json").is_file()
        assert f"../results/{run}/result.json" in page.links


def test_what_was_left_out_is_told_and_escaped(report: Path) -> None:
    text = (report / "index.html").read_text()
    assert "baseline-5.0/rep-0 is left out" in text
    assert "&lt;b&gt;the disk&lt;/b&gt; is full" in text


def test_figures_without_data_name_the_command_that_measures_them(capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(Path("elsewhere"), variants=["dual_blade"], limits_gb=[2.0, 4.0, 6.0])
    assert main(["--results", "elsewhere", "--out", "out"]) == 0
    text = Path("out/index.html").read_text()
    assert "python -m experiments.run +experiment=thrashing results_dir=elsewhere" in text
    out, _ = capsys.readouterr()
    assert out.splitlines()[-1].endswith("out/index.html, out/claims.json")
    assert [line.split()[0] for line in out.splitlines()[:-1]] == [f"C{number}" for number in range(1, 23)]


def test_a_bug_in_a_figure_is_told_in_its_place_and_by_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(Path("results"), limits_gb=[2.0, 4.0])
    broken: Any = lambda data: int(float("nan"))  # noqa: E731
    monkeypatch.setitem(FIGURES, "thrashing", replace(FIGURES["thrashing"], plot=broken))
    assert main([]) == 1
    assert "thrashing is not drawn because of a bug: ValueError: cannot convert" in capsys.readouterr().err
    text = Path("report/index.html").read_text()
    assert "Not drawn because of a bug: ValueError: cannot convert" in text
    assert len(Page(text).images) == 2


def test_without_results_the_default_sweep_is_measured_first(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Path] = []

    def sweep_once(results_dir: Path) -> int:
        measured.append(results_dir)
        write_sweep(results_dir, limits_gb=[2.0, 4.0, 6.0])
        return 0

    monkeypatch.setattr(default_sweep, "run_default_sweep", sweep_once)
    assert main([]) == 0
    assert measured == [Path("results")]
    assert Path("report/index.html").is_file()


def test_a_wrong_folder_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--results", "missing"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "does not exist" in err
    assert not Path("report").exists()
