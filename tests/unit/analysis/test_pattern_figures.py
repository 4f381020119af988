"""Figures of addresses: every command of the window is drawn where it lay, in the order in which it was issued."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import matplotlib as mpl
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from analysis.drawing import style
from analysis.figures.device import access_pattern, lba_pattern
from analysis.metrics.addresses import WIDEST_GAP_BYTES, closed_gaps, with_places
from analysis.metrics.run_metrics import with_metrics
from analysis.results.device_io import DECODE_READ, load_device_io
from analysis.results.load import load
from tests.support.device_traces import write_traced_run
from traces import schema


@pytest.fixture(autouse=True)
def paper_style() -> Iterator[None]:
    with mpl.rc_context(style.RC):
        yield


@pytest.fixture
def runs(tmp_path: Path) -> pd.DataFrame:
    for variant in ("baseline", "cachepolicy_only", "dual_blade"):
        write_traced_run(tmp_path, variant)
    write_traced_run(tmp_path, "baseline", repetition=1)
    return lba_pattern.select(with_metrics(load(tmp_path))).runs


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1, 1 << 22)), min_size=1, max_size=40))
def test_closing_gaps_keeps_order_and_what_adjoins(drawn: list[tuple[int, int]]) -> None:
    offsets, sizes = (pd.Series(column) for column in zip(*drawn, strict=True))
    places = closed_gaps(offsets, sizes)
    assert places.min() == 0
    ordered = pd.DataFrame({"at": offsets, "end": offsets + sizes, "place": places}).sort_values("at")
    moved = ordered["at"] - ordered["place"]
    steps = ordered["at"].diff().iloc[1:], ordered["place"].diff().iloc[1:]
    assert (steps[1] >= 0).all() and (steps[1] <= steps[0]).all()
    gap = (ordered["at"] - ordered["end"].cummax().shift()).iloc[1:]
    narrow = gap <= WIDEST_GAP_BYTES
    assert (moved.diff().iloc[1:][narrow] == 0).all()


def test_commands_are_placed_by_the_bytes_issued_before_them() -> None:
    commands = pd.DataFrame({"issue_ns": [20, 10, 30], "offset_bytes": [1 << 40, 0, 1 << 20], "bytes": [1 << 20] * 3})
    placed = with_places(commands)
    assert list(placed["issued_mib"]) == [0, 1, 2]
    assert list(placed["place_mib"]) == [0, 3, 1]


def test_one_run_of_each_of_the_two_variants_is_chosen(runs: pd.DataFrame) -> None:
    assert list(runs["config.variant.name"]) == ["baseline", "dual_blade"]
    assert set(runs["config.repetition"]) == {0}


def test_both_sides_are_of_one_testbed_and_ssd_a_real_one_first(tmp_path: Path) -> None:
    guest: dict[str, Any] = {"config": {"trace.name": "none", "testbed.name": "guest", "storage.name": "ssd_a"}}
    write_traced_run(tmp_path, "dual_blade", environment={"storage.model": "another disk"})
    for variant in lba_pattern.SIDES:
        write_traced_run(tmp_path, variant, 1, environment={"emulated": True, "storage.serial": "A"}, **guest)
    both = lba_pattern.select(with_metrics(load(tmp_path)))
    assert set(both.runs["config.testbed.name"]) == {"guest"} and len(both.runs) == 2
    assert both.left_out == ("1 run of dual_blade on local, another disk",)
    write_traced_run(tmp_path, "baseline", environment={"storage.model": "another disk"})
    real = lba_pattern.select(with_metrics(load(tmp_path)))
    assert set(real.runs["config.testbed.name"]) == {"local"} and len(real.runs) == 2
    assert real.left_out == ("2 runs of baseline, dual_blade on guest, ssd_a (emulated)",)


def test_queues_are_shown_where_there_are_several(tmp_path: Path) -> None:
    guest: dict[str, Any] = {"config": {"trace.name": "none", "testbed.name": "guest", "storage.name": "ssd_a"}}
    for variant in lba_pattern.SIDES:
        put_in_one_queue(write_traced_run(tmp_path, variant) / schema.FILE_NAME)
        write_traced_run(tmp_path, variant, 1, environment={"emulated": True, "storage.serial": "A"}, **guest)
    results = with_metrics(load(tmp_path))
    assert set(access_pattern.select(results).runs["config.testbed.name"]) == {"guest"}
    assert set(lba_pattern.select(results).runs["config.testbed.name"]) == {"local"}


def put_in_one_queue(path: Path) -> None:
    table = pq.read_table(path)
    queues = pa.array([0] * len(table), table.schema.field("queue").type)
    pq.write_table(table.set_column(table.column_names.index("queue"), table.schema.field("queue"), queues), path)


def test_each_command_of_the_window_is_one_line(runs: pd.DataFrame) -> None:
    figure = lba_pattern.plot(runs)
    for column, (_, run) in enumerate(runs.iterrows()):
        io = load_device_io(run["folder"])
        window = lba_pattern.window(io.commands_of(DECODE_READ), DECODE_READ)
        assert set(window["iteration"]) == {3}
        _, keys, values = figure.axes[len(runs) + column].collections
        for lines, kind in ((keys, "k"), (values, "v")):
            heights = [segment[1, 1] - segment[0, 1] for segment in lines.get_segments()]  # type: ignore[attr-defined]
            assert heights == pytest.approx(list(window["bytes"][window["kind"] == kind] / (1 << 20)))


def test_interleaved_tensors_show_as_jumps(runs: pd.DataFrame) -> None:
    figure = lba_pattern.plot(runs)
    jumps = [len(figure.axes[2 + column].collections[0].get_segments()) for column in range(2)]  # type: ignore[attr-defined]
    assert jumps[0] > jumps[1]


def test_shares_of_queues_add_up(runs: pd.DataFrame) -> None:
    figure = access_pattern.plot(runs)
    for axes in figure.axes[4:6]:
        sums = [np.sum([bar.get_height() for bar in group]) for group in axes.containers]  # type: ignore[attr-defined]
        assert sums == pytest.approx([1, 1])


@pytest.mark.parametrize("module", [lba_pattern, access_pattern])
def test_captions_say_where_it_comes_from(runs: pd.DataFrame, module: object) -> None:
    text = module.FIGURE.caption(runs)  # type: ignore[attr-defined]
    assert "Testbed local" in text and "2 runs" in text
