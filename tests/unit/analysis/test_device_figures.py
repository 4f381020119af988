"""Figures of the device: what they draw is what the metrics say of the traces, and bad traces are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from analysis.drawing import layout, style
from analysis.figures.device import device_latency_table, disk_throughput, latency_by_depth
from analysis.figures.registry import FIGURES
from analysis.metrics.device_metrics import by_depth, device_metrics
from analysis.metrics.run_metrics import with_metrics
from analysis.results.device_io import DECODE_READ, load_device_io
from analysis.results.load import load
from tests.support.analysis_results import write_io, write_run, write_sweep
from tests.support.device_traces import write_trace, write_traced_run

VARIANTS = ("baseline", "dual_blade")
MODULES = (device_latency_table, disk_throughput, latency_by_depth)


@pytest.fixture(autouse=True)
def paper_style() -> Iterator[None]:
    with mpl.rc_context(style.RC):
        yield


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for variant in VARIANTS:
        write_traced_run(tmp_path, variant)
    return tmp_path


def drawn(module: object, results_dir: Path) -> Figure:
    selection = module.FIGURE.select(with_metrics(load(results_dir)))  # type: ignore[attr-defined]
    return module.FIGURE.draw(selection.runs)  # type: ignore[attr-defined,no-any-return]


def test_the_table_holds_the_metrics_of_each_run(results: Path) -> None:
    runs = device_latency_table.FIGURE.select(with_metrics(load(results))).runs
    table = device_latency_table.table(runs)
    assert list(zip(table["request"], table["variant"], strict=True)) == [
        (kind, variant) for kind in ("Prefill write", "Decode read", "Decode write") for variant in VARIANTS
    ]
    record = device_metrics(load_device_io(results / "traced/dual_blade-2.0/rep-0"))
    row = table[(table["request"] == "Decode read") & (table["variant"] == "dual_blade")].iloc[0]
    assert row["busy_rate"] == pytest.approx(record["busy_rate.decode_read"])
    assert row["command_us.p99"] == pytest.approx(record["command_us.decode_read.p99"])


@pytest.mark.parametrize("module", MODULES)
def test_a_trace_without_its_log_is_left_out_and_named(results: Path, module: object) -> None:
    log = results / "traced/baseline-2.0/rep-0/kv_io.parquet"
    log.unlink()
    selection = module.FIGURE.select(with_metrics(load(results)))  # type: ignore[attr-defined]
    assert set(selection.runs["config.variant.name"]) == {"dual_blade"}
    assert any(str(log) in text for text in selection.left_out)


def test_the_tables_bars_are_the_busy_rates(results: Path) -> None:
    busy = drawn(device_latency_table, results).axes[2]
    widths = [container[1].get_width() for container in busy.containers]  # type: ignore[index]
    assert widths == pytest.approx([60 / 90, 1.0])


def test_depth_bins_are_those_of_the_commands(results: Path) -> None:
    runs = latency_by_depth.FIGURE.select(with_metrics(load(results))).runs
    assert set(latency_by_depth.bins(runs, DECODE_READ)["variant"]) == {
        "baseline"
    }  # the direct path's bins have too few commands
    own = by_depth(load_device_io(results / "traced/baseline-2.0/rep-0").commands_of(DECODE_READ))
    assert len(own) == 2 and (own["commands"] == 32).all()


def test_throughput_integrates_to_the_bytes_moved(results: Path) -> None:
    reads = drawn(disk_throughput, results).axes[1]
    lines = {line.get_label(): line.get_xydata() for line in reads.lines if not line.get_label().startswith("_")}
    assert list(lines) == ["Baseline", "DUAL-BLADE"]
    points = lines["DUAL-BLADE"]
    width_s = points[1][0] - points[0][0]
    assert (points[:, 1] * width_s).sum() == pytest.approx(2 * 2 * (2 << 20) / 1e9, rel=1e-3)


def test_the_devices_own_rate_is_that_of_the_same_ssd(results: Path) -> None:
    write_io(results, "ext4_direct", op="read")
    write_io(results, "block_direct", op="write", environment={"storage.serial": "S2"})
    runs = disk_throughput.FIGURE.select(with_metrics(load(results))).runs
    assert runs["device_gb_per_s.write"].isna().all()
    assert set(runs["device_gb_per_s.read"].round(3)) == {3.427}  # 1 MiB at queue depth 16: 1 MiB / 306 us


def test_the_caption_says_what_the_tracer_cost(tmp_path: Path) -> None:
    """Of each variant against runs that differ in the trace alone; those of another SSD are no measure."""
    for turn, untraced_s in enumerate((0.8, 1.0, 1.2)):
        write_run(tmp_path, "baseline", 2.0, turn, result={"decode_s": [9.0] + [untraced_s] * 7})
    write_run(tmp_path, "dual_blade", 2.0, 0, environment={"storage.serial": "S2"})
    for variant in VARIANTS:
        write_traced_run(tmp_path, variant, result={"decode_s": [9.0] + [1.1] * 7})
    caption = device_latency_table.FIGURE.caption(device_latency_table.FIGURE.select(with_metrics(load(tmp_path))).runs)
    assert caption.endswith("Decode latency with the tracer against runs without it, local: Baseline +10 %.")


def test_without_untraced_runs_the_tracers_cost_is_not_known(results: Path) -> None:
    caption = device_latency_table.FIGURE.caption(device_latency_table.FIGURE.select(with_metrics(load(results))).runs)
    assert "The cost of tracing was not measured" in caption


def test_utilisation_is_of_the_rate_that_fio_reached(results: Path) -> None:
    write_io(results, "ext4_direct", op="read")
    selected = device_latency_table.FIGURE.select(with_metrics(load(results))).runs
    table = device_latency_table.table(selected).set_index(["request", "variant"])
    fio_gb_per_s = (1 << 20) / 306e-6 / 1e9
    moved_gb_per_s = (512 << 10) * 2 / 120e-6 / 1e9  # two commands in flight, without a gap
    assert table.loc[("Decode read", "dual_blade"), "device_gb_per_s"] == pytest.approx(fio_gb_per_s)
    used = table.loc[("Decode read", "dual_blade"), "utilisation"]
    assert used == pytest.approx(moved_gb_per_s / fio_gb_per_s, rel=1e-3)
    assert set(table.loc["Prefill write", "utilisation"]) == {"not measured"}
    assert "(reads)" in device_latency_table.FIGURE.caption(selected)
    marks = [line.get_xdata()[1] for line in drawn(device_latency_table, results).axes[2].lines]
    assert marks[1] == pytest.approx(used)


@pytest.mark.parametrize(
    "environment",
    [{"storage.serial": "S2"}, {"storage.model": "another"}, {"emulated": True}, {"cpu": "another"}],
    ids=str,
)
def test_a_rate_of_another_storage_or_machine_is_none(results: Path, environment: dict[str, object]) -> None:
    write_io(results, "ext4_direct", environment=environment)
    selected = device_latency_table.FIGURE.select(with_metrics(load(results))).runs
    assert set(device_latency_table.table(selected)["utilisation"]) == {"not measured"}
    assert "not measured" in device_latency_table.FIGURE.caption(selected)


@pytest.mark.parametrize(("read_mb_per_s", "known"), [(100, True), (200, False)])
def test_an_emulated_ssds_rate_is_that_of_the_same_throttle(tmp_path: Path, read_mb_per_s: int, known: bool) -> None:
    write_traced_run(tmp_path, "baseline", config={"trace.name": "none", "emulated_ssd": {"read_mb_per_s": 100}})
    write_io(tmp_path, config={"emulated_ssd": {"read_mb_per_s": read_mb_per_s}})
    runs = disk_throughput.FIGURE.select(with_metrics(load(tmp_path))).runs
    assert runs["device_gb_per_s.read"].notna().all() == known


def test_a_paced_storage_has_no_rate_of_its_own(tmp_path: Path) -> None:
    pace = {"name": "stated", "read_gb_per_s": 1.0, "write_gb_per_s": 1.0}
    write_traced_run(tmp_path, "baseline", config={"trace.name": "none", "storage.pace": pace})
    write_io(tmp_path)
    assert disk_throughput.FIGURE.select(with_metrics(load(tmp_path))).runs["device_gb_per_s.read"].isna().all()


def test_disks_without_a_serial_are_told_apart_by_name(tmp_path: Path) -> None:
    write_traced_run(tmp_path, "baseline", environment={"storage.serial": None})
    write_io(tmp_path, environment={"storage.serial": None, "storage.name": "vdb"})
    assert disk_throughput.FIGURE.select(with_metrics(load(tmp_path))).runs["device_gb_per_s.read"].isna().all()


def test_runs_at_other_limits_and_without_a_trace_are_not_drawn(results: Path) -> None:
    write_sweep(results, limits_gb=[2.0, 4.0])
    runs = latency_by_depth.FIGURE.select(with_metrics(load(results))).runs
    assert len(runs) == 2 and set(runs["memory_gb"]) == {2.0}


def test_a_lossy_trace_is_told_and_the_rest_drawn(results: Path) -> None:
    run_dir = write_traced_run(results, "nvme_direct_only")
    write_trace(run_dir, [], valid=False, reason="3 events were lost")
    selection = latency_by_depth.FIGURE.select(with_metrics(load(results)))
    assert len(selection.runs) == 2
    (sentence,) = selection.left_out
    assert "3 events were lost" in sentence and "nvme_direct_only" in sentence


def test_nothing_traced_is_nothing_to_draw(tmp_path: Path) -> None:
    write_sweep(tmp_path, limits_gb=[2.0, 4.0])
    for module in MODULES:
        assert module.FIGURE.select(with_metrics(load(tmp_path))).runs.empty


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_two_ssds_never_share_a_panel_and_nothing_overlaps(results: Path, module: object) -> None:
    one = len(drawn(module, results).axes)
    for variant in VARIANTS:
        write_traced_run(results, variant, repetition=1, environment={"storage.serial": "S2"})
    figure = drawn(module, results)
    assert len(figure.axes) == 2 * one
    figure.draw_without_rendering()
    page = figure.bbox.padded(1)
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    boxes += [text.get_window_extent() for text in (*figure.texts, *figure.legends)]
    for turn, box in enumerate(boxes):
        assert box is not None
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        assert not any(other is not None and box.overlaps(other) for other in boxes[:turn])


def test_the_caption_tells_how_the_commands_were_seen(results: Path) -> None:
    runs = latency_by_depth.FIGURE.select(with_metrics(load(results))).runs
    text = latency_by_depth.FIGURE.caption(runs)
    assert "Memory limit 2 GB. Commands traced by synthetic: 0 events, none lost." in text


def test_the_caption_tells_what_a_valid_trace_lacks(results: Path) -> None:
    run_dir = write_traced_run(results, "nvme_direct_only")
    requests = [{}, {"phase": "prefill", "iteration": 0, "op": "write"}]
    write_trace(run_dir, [{}], requests, printed_events=1000, missed_commands=12, skipped_probes=3)
    text = latency_by_depth.FIGURE.caption(latency_by_depth.FIGURE.select(with_metrics(load(results))).runs)
    assert "1,000 events; the disks' own statistics count 12 commands more; the kernel skipped a probe 3 times." in text
    assert "none lost" not in text


def test_numbers_are_written_beside_a_figure(results: Path, tmp_path: Path) -> None:
    with_numbers = {"io_layers", "device_latency_table", "io_paths", "latency_by_depth"}
    assert {name for name, figure in FIGURES.items() if figure.table} == with_numbers
    runs = device_latency_table.FIGURE.select(with_metrics(load(results))).runs
    stem = tmp_path / "table"
    stem.with_suffix(".md").write_text("The caption.\n")
    csv = layout.save_table(device_latency_table.table(runs), stem).read_text().splitlines()
    assert csv[0].startswith("ssd,request,variant,request_ms.mean") and len(csv) == 7
    text = stem.with_suffix(".md").read_text()
    assert text.startswith("The caption.\n\n| ssd | request |") and text.count("\n|") == 8
