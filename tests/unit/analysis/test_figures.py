"""Figures: every point comes from a result file, and the files are what a paper takes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from analysis.drawing import layout, style
from analysis.figures import e2e_latency, hit_rate, io_paths, thrashing
from analysis.metrics.run_metrics import with_metrics
from analysis.results.load import load
from tests.support.analysis_results import LIMITS_GB, VARIANTS, io_cell, write_io, write_run, write_sweep

Curve = dict[float, float]
LABELS = ["Baseline", "CachePolicy-Only", "NVMe-direct-Only", "DUAL-BLADE"]
MODULES = {"thrashing": thrashing, "e2e_latency": e2e_latency, "hit_rate": hit_rate, "io_paths": io_paths}


@pytest.fixture(autouse=True)
def paper_style() -> Iterator[None]:
    with mpl.rc_context(style.RC):
        yield


def figure_of(name: str, results_dir: Path) -> Figure:
    module = MODULES[name]
    return module.FIGURE.draw(module.FIGURE.select(with_metrics(load(results_dir))).runs)


def curves(axes: Axes) -> dict[str, Curve]:
    containers = [container for container in axes.containers if isinstance(container, ErrorbarContainer)]
    return {str(c.get_label()): dict(zip(*c.lines[0].get_data(), strict=True)) for c in containers}


def written(results_dir: Path, variant: str, field: str) -> Curve:
    """Medians over the repetitions, straight from the files."""
    values: dict[float, list[float]] = {}
    for path in results_dir.glob(f"*/{variant}-*/rep-*/result.json"):
        result = json.loads(path.read_text())
        fields = {
            "prefill": result["prefill_s"],
            "decode": median(result["decode_s"][1:]),
            "hit": result["hit_rate"]["decode"],
        }
        values.setdefault(float(path.parts[-3].removeprefix(f"{variant}-")), []).append(fields[field])
    return {limit: pytest.approx(median(runs)) for limit, runs in sorted(values.items())}


@pytest.mark.parametrize("repetitions", [1, 4])
def test_every_point_is_the_median_of_what_the_files_hold(tmp_path: Path, repetitions: int) -> None:
    write_sweep(tmp_path, repetitions=repetitions)
    for name, fields in (("e2e_latency", ["prefill", "decode"]), ("hit_rate", ["hit"])):
        for axes, field in zip(figure_of(name, tmp_path).axes, fields, strict=True):
            drawn = curves(axes)
            assert list(drawn) == LABELS
            for label, variant in zip(LABELS, VARIANTS, strict=True):
                assert drawn[label] == written(tmp_path, variant, field)


def test_thrashing_is_the_baseline_in_three_panels(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    panels = figure_of("thrashing", tmp_path).axes
    for axes, field in zip(panels, ["prefill", "decode", "hit"], strict=True):
        assert curves(axes) == {"Baseline": written(tmp_path, "baseline", field)}


def test_thrashing_draws_each_lru_by_itself(tmp_path: Path) -> None:
    write_sweep(tmp_path, variants=["baseline"])
    write_sweep(tmp_path, ["baseline"], [9.0, 9.5], experiment="lru", environment={"lru_generation": "0x0007"})
    hit = curves(figure_of("thrashing", tmp_path).axes[2])
    assert {label: len(curve) for label, curve in hit.items()} == {
        "Baseline, classic LRU": len(LIMITS_GB),
        "Baseline, multi-generational LRU": 2,
    }


def test_a_longer_sweep_under_one_lru_does_not_hide_the_two_that_compare(tmp_path: Path) -> None:
    multigen = {"lru_generation": "0x0007"}
    write_sweep(tmp_path, ["baseline"], [9.0, 9.5], experiment="classic")
    write_sweep(tmp_path, ["baseline"], [9.0, 9.5], experiment="multigen", environment=multigen)
    write_sweep(tmp_path, ["baseline"], [7.0, 8.0, 9.0], experiment="longer", config={"scale": 16})
    hit = curves(figure_of("thrashing", tmp_path).axes[2])
    assert {len(curve) for curve in hit.values()} == {2} and len(hit) == 2


@pytest.mark.parametrize(("repetitions", "bars"), [(1, 0), (2, 1)])
def test_intervals_need_repetitions(tmp_path: Path, repetitions: int, bars: int) -> None:
    write_sweep(tmp_path, repetitions=repetitions)
    for container in figure_of("e2e_latency", tmp_path).axes[1].containers:
        assert isinstance(container, ErrorbarContainer)
        assert len(container.lines[2]) == bars


def test_interval_spans_the_repetitions(tmp_path: Path) -> None:
    for repetition, seconds in enumerate([3.0, 1.0, 2.0]):
        write_run(tmp_path, "baseline", 4.0, repetition, result={"prefill_s": seconds})
    write_run(tmp_path, "baseline", 6.0, result={"prefill_s": 5.0})
    (container,) = figure_of("thrashing", tmp_path).axes[0].containers
    assert isinstance(container, ErrorbarContainer)
    (bars,) = container.lines[2]
    with_interval = [segment[:, 1].tolist() for segment in bars.get_segments() if len(segment)]
    assert with_interval == [[1.0, 3.0]]


def test_each_ssd_has_panels_of_its_own(tmp_path: Path) -> None:
    write_sweep(tmp_path, limits_gb=[2.0, 4.0])
    slower = {"prefill_s": 9.0}
    write_sweep(tmp_path, limits_gb=[2.0], experiment="b", environment={"storage.serial": "S2"}, result=slower)
    panels = figure_of("e2e_latency", tmp_path).axes
    assert len(panels) == 4
    assert sorted(max(curves(axes)["Baseline"].values()) > 8 for axes in panels[:2]) == [False, True]


def test_the_mark_is_where_the_budget_equals_the_working_set(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    axes = figure_of("hit_rate", tmp_path).axes[0]
    (mark,) = [line for line in axes.lines if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2]
    assert mark.get_xdata()[0] == pytest.approx(1.0 + 520 * 32 * 524288 / 1e9)
    (top,) = axes.child_axes
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    low, high = axes.get_xlim()
    to_ratio = [(limit - 1.0) * 1e9 / (520 * 32 * 524288) for limit in (low, high)]
    assert top.get_xlim() == pytest.approx(to_ratio)


def test_a_variant_of_ones_own_is_drawn_under_its_name(tmp_path: Path) -> None:
    write_sweep(tmp_path, variants=["dual_blade", "my_variant", "baseline"])
    assert list(curves(figure_of("hit_rate", tmp_path).axes[0])) == ["Baseline", "DUAL-BLADE", "my_variant"]


def test_looks_are_told_apart_without_colour() -> None:
    looks = style.looks([*VARIANTS, "one", "two", "three"]).values()
    assert len({(look.marker, look.hollow) for look in looks}) == len({look.color for look in looks}) == 7


def test_files_are_of_a_papers_column(tmp_path: Path) -> None:
    write_sweep(tmp_path / "results", limits_gb=[2.0, 4.0])
    pdf, png, text = layout.save(figure_of("hit_rate", tmp_path / "results"), tmp_path / "hit_rate", "The caption.")
    assert text.read_text() == "The caption.\n"
    width_px, _ = struct.unpack(">II", png.read_bytes()[16:24])
    assert width_px == round(3.35 * 300)
    assert b"The caption." in png.read_bytes()
    assert b"/Subtype /Type0" in pdf.read_bytes() or b"/Subtype /TrueType" in pdf.read_bytes()
    assert b"/Type3" not in pdf.read_bytes()


def test_io_paths_are_drawn_over_size_and_over_depth(tmp_path: Path) -> None:
    for path in ("io_uring_cmd", "ext4_buffered", "block_direct"):
        write_io(tmp_path, path)
    latency, over_depth, throughput, _ = figure_of("io_paths", tmp_path).axes
    assert list(curves(latency)) == ["ext4 buffered", "block O_DIRECT (loop)", "io_uring_cmd"]
    expected = {kib: io_cell(kib << 10, 1) for kib in (4, 64, 256, 1024)}
    assert curves(latency)["io_uring_cmd"] == {
        kib: pytest.approx(cell["latency_us"]["mean"]) for kib, cell in expected.items()
    }
    assert curves(throughput)["io_uring_cmd"] == {
        kib: pytest.approx(cell["bytes_per_s"] / 1e9) for kib, cell in expected.items()
    }
    assert curves(over_depth)["io_uring_cmd"] == {
        depth: pytest.approx(io_cell(256 << 10, depth)["latency_us"]["mean"]) for depth in (1, 16)
    }


def test_io_paths_hold_the_nearest_size_and_depth_that_were_measured(tmp_path: Path) -> None:
    cells = [io_cell(kib << 10, depth) for kib in (4, 64, 512, 4096) for depth in (2, 16)]
    write_io(tmp_path, "io_uring_cmd", result={"cells": cells})
    write_io(tmp_path, "ext4_direct", result={"cells": [*cells, io_cell(256 << 10, 16)]})  # a size that one path has
    runs = io_paths.select(with_metrics(load(tmp_path))).runs
    over_size, over_depth, *_ = io_paths.plot(runs).axes
    assert (over_size.get_title(), over_depth.get_title()) == ("queue depth 2", "512 KiB requests")
    assert list(curves(over_size)["io_uring_cmd"]) == [4, 64, 512, 4096]
    assert list(curves(over_depth)["io_uring_cmd"]) == [2, 16]
    assert "at queue depth 2, and over queue depth with requests of 512 KiB" in io_paths.FIGURE.caption(runs)


def test_io_paths_of_another_disk_or_direction_are_left_out(tmp_path: Path) -> None:
    for path in ("ext4_buffered", "ext4_direct"):
        write_io(tmp_path, path)
    write_io(tmp_path, "ext4_direct", op="write")
    write_io(tmp_path, "io_uring_cmd", environment={"storage.serial": "S2"})
    selection = io_paths.select(with_metrics(load(tmp_path)))
    assert len(selection.runs) == 2
    assert "1 run of ext4_direct with io.op=write" in selection.left_out
    assert "1 run of io_uring_cmd with storage.serial=S2" in selection.left_out


def test_io_paths_shows_reads_where_reads_and_writes_were_measured(tmp_path: Path) -> None:
    for op in ("read", "write"):
        for path in ("ext4_buffered", "ext4_direct"):
            write_io(tmp_path, path, op=op, environment={"started_at": f"2026-01-0{1 if op == 'read' else 2}"})
    assert set(io_paths.select(with_metrics(load(tmp_path))).runs["config.io.op"]) == {"read"}


@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_drawn_outside_the_page_or_over_other_text(tmp_path: Path, name: str) -> None:
    write_sweep(tmp_path, repetitions=2)
    for path in style.IO_PATHS:
        write_io(tmp_path, path)
    figure = figure_of(name, tmp_path)
    figure.draw_without_rendering()
    page = figure.bbox.padded(1)
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    boxes += [text.get_window_extent() for text in figure.texts]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    for turn, box in enumerate(boxes):
        assert box is not None
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        assert not any(other is not None and box.overlaps(other) for other in boxes[:turn])
