"""Figures of how storage and link overlap, on runs whose times follow the model exactly."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure

from analysis.drawing import style
from analysis.figures import overlap_model as model_figure
from analysis.figures import phase_breakdown, pipeline, throughput_dynamics
from analysis.metrics import overlap_model
from analysis.metrics.run_metrics import with_metrics
from analysis.results import kv_io
from analysis.results.load import load
from dualblade.run.run_files import RunFile
from tests.support.analysis_results import write_run, write_sweep

LAYERS = 32
TENSOR_GB = 0.01
S, LINKS = 2.0, (1.0, 2.0, 4.6, 10.0)


@pytest.fixture(autouse=True)
def paper_style() -> Iterator[None]:
    with mpl.rc_context(style.RC):
        yield


def write_overlap(
    results_dir: Path,
    name: str,
    link: float,
    n1: int = 0,
    repetition: int = 0,
    storage: str = "paced",
    experiment: str | None = None,
    iterations: int = 8,
    ratio_to: float | None = None,
    **settings: Any,
) -> Path:
    """A run that takes the model's time for its layers past the page cache, and none for the others.

    With `ratio_to`, the link is stated as a multiple of a storage's rate, `ratio_to` GB/s as measured.
    """
    layer_s = overlap_model.LAYER_S["cross" if name == "adaptive" else name](TENSOR_GB, ratio_to or S, link)
    token_s = (LAYERS - n1) * layer_s
    stated = {"storage_ratio": link / ratio_to} if ratio_to else {"gb_per_s": link}
    pace = {"gb_per_s": None, "storage_ratio": None, "source": "a test"} | stated
    config = {
        "variant.knob": f"{100 * n1 // LAYERS}%",
        "variant.pipeline": name,
        "storage.name": storage,
        "storage.pace": {"name": "a stated rate", "read_gb_per_s": S},
        "device.name": "paced",
        "device.link": "paced",
        "device.pace": pace,
        "device.gpu": None,
    }
    steps = [
        {"iteration": i, "strategy": "cross" if i > 2 else "intra", "gb_per_s": 1.0 + i / 10} for i in range(1, 10)
    ]
    result: dict[str, Any] = {
        "decode_s": [2 * token_s] + [token_s] * (iterations - 1),
        "hit_rate.decode_per_iteration": [0.0] * iterations,
        "plan.n1": n1,
        "bytes": {"decode": {"asked_read": int(iterations * LAYERS * 2 * TENSOR_GB * 1e9)}},
        "link": pace | {"kind": "paced", "emulated": True, "gb_per_s": link, "storage_gb_per_s": ratio_to},
        "pipeline": {"policy": name, "groups": {"direct": {"choice": "cross", "iterations": steps}}},
    }
    config |= {"variant.name": "x", "variant.overflow": "direct", "experiment": experiment or "single"} | settings
    folder = experiment or f"{storage}-{name}-{link:g}" + "".join(f"-{value}" for value in settings.values())
    return write_run(results_dir, f"{name}{n1}", None, repetition, folder, config, None, result)


def figure_of(module: Any, results_dir: Path) -> Figure:
    selection = module.FIGURE.select(with_metrics(load(results_dir)))
    assert module.FIGURE.caption(selection.runs)
    figure = module.FIGURE.draw(selection.runs)
    assert isinstance(figure, Figure)
    return figure


def marks(axes: Axes) -> dict[str, dict[float, float]]:
    containers = [container for container in axes.containers if isinstance(container, ErrorbarContainer)]
    return {str(c.get_label()): dict(zip(*c.lines[0].get_data(), strict=True)) for c in containers}


@given(st.floats(0.05, 20))
def test_the_model_orders_the_strategies(ratio: float) -> None:
    """Against the arithmetic of the published design, at b = S = 1."""
    intra, cross, limit = (overlap_model.LAYER_S[name](1, 1, ratio) for name in ("intra", "cross", "overlap_full"))
    assert limit <= cross <= intra
    assert intra == pytest.approx(2 + 2 / ratio)
    assert intra - cross == pytest.approx(min(1, 1 / ratio))
    assert overlap_model.gain("cross", "intra", 1.0) == pytest.approx(0.25)


def test_marks_lie_on_the_model_when_runs_take_its_time(tmp_path: Path) -> None:
    for name in ("intra", "cross", "adaptive", "overlap_full"):
        for link in LINKS:
            write_overlap(tmp_path, name, link)
    time, gain = figure_of(model_figure, tmp_path).axes
    for name in ("intra", "cross", "overlap_full"):
        expected = {link / S: overlap_model.LAYER_S[name](0.5, 1, link / S) for link in LINKS}
        assert marks(time)[model_figure.SHORT[name]] == {r: pytest.approx(units) for r, units in expected.items()}
    against = {link / S: overlap_model.gain("cross", "intra", link / S) for link in LINKS}
    assert marks(gain)["Cross vs Intra"] == {r: pytest.approx(share) for r, share in against.items()}


def test_a_link_in_proportion_to_the_storage_is_drawn_at_its_ratio(tmp_path: Path) -> None:
    ratios = (0.5, 1.0, 2.0)
    for (turn, rate), name, ratio in itertools.product(enumerate((3.0, 3.1)), ("intra", "cross"), ratios):
        disk = {"storage": "file", "storage.pace": None, "device.name": "paced_ratio"}
        write_overlap(tmp_path, name, ratio * rate, repetition=turn, ratio_to=rate, **disk)
        write_overlap(tmp_path, name, ratio * S, repetition=turn, ratio_to=S, **{"device.name": "paced_ratio"})
    of_disk, of_paced, gain, _ = figure_of(model_figure, tmp_path).axes
    assert (of_disk.get_title(), of_paced.get_title()) == (
        "this host's disk\nS = 3 to 3.1 GB/s",
        "paced storage (emulated)\nS = 2 GB/s",
    )
    for time, name in itertools.product((of_disk, of_paced), ("intra", "cross")):
        expected = {ratio: pytest.approx(overlap_model.LAYER_S[name](0.5, 1, ratio)) for ratio in ratios}
        assert marks(time)[model_figure.SHORT[name]] == expected
    assert list(marks(gain)["Cross vs Intra"]) == list(ratios)


def test_a_strategy_that_is_slower_than_another_is_on_the_page(tmp_path: Path) -> None:
    for link in LINKS:
        write_overlap(tmp_path, "intra", link)
        slow = write_overlap(tmp_path, "cross", link) / "result.json"
        result = json.loads(slow.read_text())
        slow.write_text(json.dumps(result | {"decode_s": [2 * seconds for seconds in result["decode_s"]]}))
    _, gain = figure_of(model_figure, tmp_path).axes
    assert gain.get_ylim()[0] < min(marks(gain)["Cross vs Intra"].values()) < 0


def test_pipeline_is_drawn_over_alpha_for_each_storage(tmp_path: Path) -> None:
    for storage in ("paced_ssd_a", "paced_ssd_b"):
        for name in ("intra", "adaptive"):
            for n1 in (0, 16):
                write_overlap(tmp_path, name, 4.6, n1, storage=storage)
    latency, _, change, _ = figure_of(pipeline, tmp_path).axes
    token_s = {n1: (LAYERS - n1) * overlap_model.cross_s(TENSOR_GB, S, 4.6) for n1 in (0, 16)}
    assert marks(latency)["adaptive"] == {n1 / LAYERS: pytest.approx(seconds) for n1, seconds in token_s.items()}
    gain = overlap_model.gain("cross", "intra", 2.3)
    assert marks(change)["adaptive"] == {0.0: pytest.approx(-gain), 0.5: pytest.approx(-gain)}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"memory_gb": 4.0}, "memory_gb=4"),
        ({"variant.overflow": "evict"}, "variant.overflow=evict"),
        ({"variant.reprobe_factor": 1.5}, "variant.reprobe_factor=1.5"),
        ({"storage.queue_depth": 4}, "storage.queue_depth=4"),
    ],
    ids=str,
)
def test_pipelines_are_compared_with_all_else_equal(tmp_path: Path, other: dict[str, Any], words: str) -> None:
    for name in ("intra", "adaptive"):
        for n1 in (0, 16, 32):
            write_overlap(tmp_path, name, 4.6, n1)
            if n1:
                write_overlap(tmp_path, name, 4.6, n1, **other)
    chosen = pipeline.select(with_metrics(load(tmp_path)))
    assert len(chosen.runs) == 6 and set(chosen.runs["alpha"]) == {0.0, 0.5, 1.0}
    assert chosen.left_out == (f"4 runs of adaptive, intra with {words}",)
    text = pipeline.FIGURE.caption(chosen.runs)
    assert "Variant x, no memory limit." in text and "overlap_full" not in text


def test_dynamics_and_model_are_of_the_direct_path_at_one_setting(tmp_path: Path) -> None:
    for name in ("adaptive", "intra", "cross"):
        for link in LINKS:
            write_overlap(tmp_path, name, link, **{"variant.overflow": "evict"})
            write_overlap(tmp_path, name, link, 0, 1, **{"memory_gb": 4.0})
    for module in (throughput_dynamics, model_figure):
        runs = module.FIGURE.select(with_metrics(load(tmp_path))).runs
        assert set(runs["memory_gb"]) == {4.0} and set(runs["config.variant.overflow"]) == {"direct"}


def test_a_pipeline_figure_of_one_storage_has_room_for_legend_and_title(tmp_path: Path) -> None:
    for name in ("intra", "adaptive", "overlap_full"):
        for n1 in (0, 16):
            write_overlap(tmp_path, name, 4.6, n1, storage="paced_ssd_a")
    figure = figure_of(pipeline, tmp_path)
    figure.draw_without_rendering()
    boxes = [legend.get_window_extent() for legend in figure.legends] + [axes.get_tightbbox() for axes in figure.axes]
    assert all(box is not None and figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 + 1 for box in boxes)


def test_dynamics_are_of_their_own_experiment_where_it_was_run(tmp_path: Path) -> None:
    for name in ("adaptive", "intra", "cross"):
        write_overlap(tmp_path, name, 4.6, experiment=throughput_dynamics.EXPERIMENT)
        for link in LINKS:
            write_overlap(tmp_path, name, link, repetition=1)
    chosen = throughput_dynamics.select(with_metrics(load(tmp_path))).runs
    assert set(chosen["config.experiment"]) == {throughput_dynamics.EXPERIMENT} and len(chosen) == 3


def test_dynamics_show_the_iterations_of_the_run_and_no_more(tmp_path: Path) -> None:
    for name in ("adaptive", "intra", "cross"):
        write_log(write_overlap(tmp_path, name, 4.6))
    panels = figure_of(throughput_dynamics, tmp_path).axes
    assert len(panels) == 3
    drawn = {line.get_label(): list(line.get_xdata()) for line in panels[0].lines if line.get_marker() != "None"}
    assert drawn == {"Overlap-Intra": [1, 2], "Overlap-Cross": [3, 4, 5, 6, 7, 8]}


def test_dynamics_leave_out_runs_that_end_before_the_choice(tmp_path: Path) -> None:
    own = throughput_dynamics.EXPERIMENT
    for name in ("adaptive", "intra", "cross"):
        write_overlap(tmp_path, name, 4.6, experiment=own, iterations=2)
    assert throughput_dynamics.select(with_metrics(load(tmp_path))).runs.empty
    for name in ("adaptive", "intra", "cross"):
        write_log(write_overlap(tmp_path, name, 4.6, iterations=4), iterations=4)
    chosen = throughput_dynamics.select(with_metrics(load(tmp_path)))
    assert set(chosen.runs["decode_iterations"]) == {4}
    assert chosen.left_out == ("3 runs of fewer than 4 decode iterations",)
    assert len(figure_of(throughput_dynamics, tmp_path).axes) == 3


def write_log(run_dir: Path, iterations: int = 10) -> None:
    """Two tensors at a time from storage, then one after the other over the link; all queued at once."""
    rows = []
    for turn in range(4 * iterations):
        start_ns = 1_000_000_000 + turn * 20_000_000
        for kind in ("k", "v"):
            rows.append(
                dict.fromkeys(kv_io.COLUMNS, 0)
                | {"phase": "decode", "iteration": 1 + turn // 4, "kind": kind, "op": "read", "path": "direct"}
                | {"bytes": 10_000_000, "storage_start_ns": start_ns, "storage_end_ns": start_ns + 10_000_000}
                | {"link_start_ns": start_ns + 10_000_000}
                | {"link_end_ns": start_ns + (14_000_000 if kind == "k" else 18_000_000)}
            )
    pd.DataFrame(rows).to_parquet(run_dir / RunFile.KV_IO)


def test_throughput_within_an_iteration_counts_every_byte_once(tmp_path: Path) -> None:
    write_log(tmp_path)
    reads = kv_io.read(tmp_path)
    storage = kv_io.gb_per_s_by_ms(reads, "storage", 1_000_000_000, 20)
    assert storage[:10] == pytest.approx([2.0] * 10) and storage[10:] == pytest.approx([0.0] * 10)
    link = kv_io.gb_per_s_by_ms(kv_io.one_at_a_time(reads, "link"), "link", 1_000_000_000, 20)
    assert link[10:18] == pytest.approx([2.5] * 8) and link[18:] == pytest.approx([0.0] * 2)
    assert kv_io.read_gb_per_s(reads) == pytest.approx(2.0)


def test_a_breakdown_is_shares_of_the_wall(tmp_path: Path) -> None:
    parts = {"wall_s": 4.0, "compute_s": 1.0, "storage_stall_s": 2.0, "link_stall_s": 0.5, "other_s": 0.5}
    phases = {"prefill": parts, "decode": parts}
    write_sweep(tmp_path, limits_gb=[2.0, 4.0, 11.0], result={"phases": phases})
    prefill, _ = figure_of(phase_breakdown, tmp_path).axes
    bars = [container for container in prefill.containers if isinstance(container, BarContainer)]
    assert len(bars) == 8 * 4  # four variants at the lowest and the highest limit, in four parts
    assert [bar[0].get_height() for bar in bars[:4]] == pytest.approx([0.25, 0.5, 0.125, 0.125])


def test_parts_of_a_breakdown_add_up_over_repetitions(tmp_path: Path) -> None:
    """Each of three runs waits for something else; the medians of its parts would add up to nothing like the wall."""
    for turn, part in enumerate(("compute_s", "storage_stall_s", "link_stall_s")):
        nothing = dict.fromkeys(("compute_s", "storage_stall_s", "link_stall_s"), 0.0)
        parts = nothing | {"wall_s": 4.0, "other_s": 1.0, part: 3.0}
        for limit_gb in (2.0, 11.0):
            write_run(tmp_path, "baseline", limit_gb, turn, result={"phases": {"prefill": parts, "decode": parts}})
    runs = phase_breakdown.select(with_metrics(load(tmp_path))).runs
    assert list(phase_breakdown.shares(runs, "decode")) == pytest.approx([0.25] * 4)


def test_a_breakdown_says_whether_offloading_pays(tmp_path: Path) -> None:
    """8 iterations wait 20 s in all for a KV that takes 5 s to compute: 50 % of it, each."""
    parts = {"wall_s": 25.5, "compute_s": 5.0, "storage_stall_s": 16.0, "link_stall_s": 4.0, "other_s": 0.5}
    write_sweep(tmp_path, limits_gb=[2.0, 11.0], result={"phases": {"prefill": parts, "decode": parts}})
    runs = phase_breakdown.select(with_metrics(load(tmp_path))).runs
    assert "DUAL-BLADE 50% and 50% (below 100 % offloading pays)" in phase_breakdown.FIGURE.caption(runs)


def test_a_breakdown_without_compute_says_nothing_of_it(tmp_path: Path) -> None:
    parts = {"wall_s": 20.5, "compute_s": 0.0, "storage_stall_s": 16.0, "link_stall_s": 4.0, "other_s": 0.5}
    write_sweep(tmp_path, limits_gb=[2.0, 11.0], result={"phases": {"prefill": parts, "decode": parts}})
    assert "pays" not in phase_breakdown.FIGURE.caption(phase_breakdown.select(with_metrics(load(tmp_path))).runs)


@pytest.mark.parametrize("module", [model_figure, pipeline, throughput_dynamics, phase_breakdown])
def test_older_results_have_nothing_to_draw(tmp_path: Path, module: Any) -> None:
    write_sweep(tmp_path)
    assert module.FIGURE.select(with_metrics(load(tmp_path))).runs.empty
