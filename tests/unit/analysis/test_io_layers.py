"""Time by layer: read from the trace's text as it was printed, joined to the commands, drawn as shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.drawing import style
from analysis.figures.device import device_latency_table
from analysis.figures.device import io_layers as figure
from analysis.metrics import layer_times
from analysis.metrics.run_metrics import with_metrics
from analysis.results.device_io import DECODE_READ, DECODE_WRITE, load_device_io
from analysis.results.documents import ResultsError
from analysis.results.load import load
from dualblade.run.run_files import RunFile
from tests.support.device_traces import write_trace, write_traced_run
from traces.decode import decode, header
from traces.formats import io_layers

DEVICES = {"vda": {"dev": 266338304, "lba_bytes": 512, "queue_of_cpu": {"0": 0, "1": 0}}}


@pytest.fixture(autouse=True)
def paper_style() -> Iterator[None]:
    with mpl.rc_context(style.RC):
        yield


def write_layers(run_dir: Path, **ns: int) -> None:
    """For each command of a trace: its stamps so many ns before its issue."""
    commands = pq.read_table(run_dir / "device_io.parquet").to_pandas()
    columns = {name: commands["issue_ns"] - before_ns for name, before_ns in ns.items()}
    table = pd.DataFrame({"offset_bytes": commands["offset_bytes"], "issue_ns": commands["issue_ns"], **columns})
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), run_dir / RunFile.IO_LAYERS)


def test_text_becomes_requests_and_their_way_down(tmp_path: Path) -> None:
    """A request seen at all layers, one that was issued before the trace began, a line cut off."""
    lines = [
        b"4000,9000,266338304,0,80,8192,0,RA,1000,2000,3500",
        b"0,9500,266338304,1,160,0,0,WS,0,0,0",
        b"4000,9000,266338304,0,80,81",
        b"@events: 2",
    ]
    raw = tmp_path / "trace.txt"
    raw.write_bytes(header("io_layers", DEVICES) + b"\n".join(lines) + b"\n")
    info = decode(raw, tmp_path / "device_io.parquet")
    io_layers.write(raw, tmp_path / "io_layers.parquet")
    assert (info.source, info.printed_events, info.counted_events, info.broken_lines) == ("io_layers", 2, 2, 1)
    assert pq.read_table(tmp_path / "io_layers.parquet").to_pylist()[0] == {
        "offset_bytes": 80 * 512,
        "issue_ns": 4000,
        "enter_ns": 1000,
        "fs_ns": 2000,
        "queue_ns": 3500,
    }


def test_layers_are_the_times_between_the_stamps(tmp_path: Path) -> None:
    commands = [
        {"offset_bytes": 0, "issue_ns": 50_000, "complete_ns": 90_000},
        {"offset_bytes": 4096, "issue_ns": 60_000, "complete_ns": 61_000},
        {"offset_bytes": 8192, "issue_ns": 70_000, "complete_ns": 71_000},
    ]
    write_trace(tmp_path, commands, [{}])
    stamps = [
        {"offset_bytes": 0, "issue_ns": 50_000, "enter_ns": 10_000, "fs_ns": 12_000, "queue_ns": 20_000},
        {"offset_bytes": 4096, "issue_ns": 60_000, "enter_ns": 20_000, "fs_ns": 0, "queue_ns": 21_000},
        {"offset_bytes": 8192, "issue_ns": 70_000, "enter_ns": 0, "fs_ns": 0, "queue_ns": 0},
    ]
    pq.write_table(pa.Table.from_pylist(stamps), tmp_path / RunFile.IO_LAYERS)
    assert layer_times.layer_us(tmp_path, DECODE_READ).to_numpy().tolist() == [[2, 8, 30, 40], [0, 1, 39, 1]]
    assert layer_times.seen_share(tmp_path, DECODE_READ) == pytest.approx(2 / 3)
    assert layer_times.layer_us(tmp_path, DECODE_WRITE).empty


def test_text_of_nvme_disks_has_the_drivers_times_too(tmp_path: Path) -> None:
    raw = tmp_path / "trace.txt"
    lines = b"4000,9000,266338304,0,80,8192,0,RA,1000,2000,3500,3800\n@events: 1\n"
    raw.write_bytes(header("io_layers_nvme", DEVICES) + lines)
    info = decode(raw, tmp_path / "device_io.parquet")
    io_layers.write(raw, tmp_path / "io_layers.parquet", nvme=True)
    assert info.valid and (info.source, info.broken_lines) == ("io_layers_nvme", 0)
    (row,) = pq.read_table(tmp_path / "io_layers.parquet").to_pylist()
    assert (row["queue_ns"], row["setup_ns"]) == (3500, 3800)


def test_the_driver_ends_where_the_device_has_the_command(tmp_path: Path) -> None:
    commands = [
        {"offset_bytes": 0, "issue_ns": 50_000, "complete_ns": 90_000},
        {"offset_bytes": 4096, "issue_ns": 60_000, "complete_ns": 61_000},  # the driver's begin was not seen
    ]
    write_trace(tmp_path, commands, [{}])
    above = {"enter_ns": 10_000, "fs_ns": 12_000, "queue_ns": 20_000}
    stamps = [
        {"offset_bytes": 0, "issue_ns": 50_000, **above, "setup_ns": 47_000},
        {"offset_bytes": 4096, "issue_ns": 60_000, **above, "setup_ns": 0},
    ]
    pq.write_table(pa.Table.from_pylist(stamps), tmp_path / RunFile.IO_LAYERS)
    (times,) = layer_times.layer_us(tmp_path, DECODE_READ).to_dict("records")
    assert times == {"vfs": 2, "file_system": 8, "block": 27, "driver": 3, "device": 40}
    assert sum(times.values()) == 80  # from the entry to the completion
    assert layer_times.seen_share(tmp_path, DECODE_READ) == pytest.approx(1 / 2)


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    write_trace(tmp_path, [{}], [{}])
    (tmp_path / RunFile.IO_LAYERS).write_bytes(b"PAR1")
    with pytest.raises(ResultsError, match=r"io_layers\.parquet cannot be used"):
        layer_times.layer_us(tmp_path, DECODE_READ)


def test_the_bars_are_shares_of_the_mean_time_of_the_baseline(tmp_path: Path) -> None:
    for variant in ("baseline", "dual_blade"):
        write_layers(write_traced_run(tmp_path, variant), enter_ns=40_000, fs_ns=30_000, queue_ns=10_000)
    runs = figure.select(with_metrics(load(tmp_path))).runs
    assert set(runs["config.variant.name"]) == {"baseline"}
    device_us = 60 - 0.5  # of two commands one is issued 1 us after the other, and both end together
    shown, busy = figure.plot(runs).axes
    widths = [[bar.get_width() for bar in bars] for bars in shown.containers]  # type: ignore[union-attr]
    total_us = 10 + 20 + 10 + device_us
    assert [row[1] for row in widths] == pytest.approx(
        [10 / total_us, 20 / total_us, 10 / total_us, device_us / total_us]
    )
    assert busy.containers[0][1].get_width() == pytest.approx(60 / 90)  # type: ignore[index]
    assert "decode read 100%" in figure.FIGURE.caption(runs)


def test_the_caption_says_which_layers_were_told_apart_and_ssds_do_not_mix(tmp_path: Path) -> None:
    above = {"enter_ns": 40_000, "fs_ns": 30_000, "queue_ns": 10_000}
    write_layers(write_traced_run(tmp_path, "baseline"), **above)
    together = figure.select(with_metrics(load(tmp_path))).runs
    assert figure.TOGETHER in figure.FIGURE.caption(together) and figure.APART not in figure.FIGURE.caption(together)
    write_layers(write_traced_run(tmp_path, "baseline", repetition=1), **above, setup_ns=2_000)
    apart = figure.select(with_metrics(load(tmp_path))).runs
    assert list(apart["config.repetition"]) == [1]
    assert figure.APART in figure.FIGURE.caption(apart) and figure.TOGETHER not in figure.FIGURE.caption(apart)
    table = figure.table(apart).set_index("request")
    assert table.loc["Decode read", "driver"] == pytest.approx(2)
    assert {"driver", "device"} <= set(table) and "driver_and_device" not in table
    shown, _ = figure.plot(apart).axes
    assert [container.get_label() for container in shown.containers][-2:] == ["Driver", "Device"]


def test_a_run_that_cannot_be_read_and_one_that_says_less_are_left_out_with_a_word(tmp_path: Path) -> None:
    above = {"enter_ns": 40_000, "fs_ns": 30_000, "queue_ns": 10_000}
    write_layers(write_traced_run(tmp_path, "baseline"), **above)
    write_layers(write_traced_run(tmp_path, "baseline", repetition=1), **above, setup_ns=2_000)
    (write_traced_run(tmp_path, "baseline", repetition=2) / RunFile.IO_LAYERS).write_bytes(b"PAR1")
    selection = figure.select(with_metrics(load(tmp_path)))
    assert list(selection.runs["config.repetition"]) == [1]
    damaged, unsplit = selection.left_out
    assert "rep-2/io_layers.parquet cannot be used" in damaged
    assert unsplit == "1 run whose trace does not tell driver and device apart"


def test_the_other_figures_draw_no_trace_of_the_layers(tmp_path: Path) -> None:
    above = {"enter_ns": 40_000, "fs_ns": 30_000, "queue_ns": 10_000}
    write_layers(write_traced_run(tmp_path, "baseline", config={"trace.name": "io_layers"}), **above)
    results = with_metrics(load(tmp_path))
    assert len(figure.select(results).runs) == 1
    assert device_latency_table.FIGURE.select(results).runs.empty


def test_runs_without_layers_are_nothing_to_draw(tmp_path: Path) -> None:
    run_dir = write_traced_run(tmp_path, "baseline")
    assert len(load_device_io(run_dir).commands) > 0
    assert figure.select(with_metrics(load(tmp_path))).runs.empty
