"""Paper figure 5: latency and throughput of the I/O paths, over request size and over queue depth."""

from __future__ import annotations

import math
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.drawing.curves import draw_medians
from analysis.drawing.layout import add_legend, new_panels
from analysis.drawing.style import IO_PATHS, Look
from analysis.figures.spec import IO_RUNS, FigureSpec
from analysis.metrics.run_metrics import io_cells
from analysis.metrics.stats import summarise
from analysis.names import FILE_SYSTEM, IO_OP, IO_PATH
from analysis.results.load import Results, optional
from analysis.selection.comparison import OVER_IO_PATHS, Selection

HEADROOM = 1.08


class Axis(NamedTuple):
    """One column of panels: `x` varies, and `held` stays at `wanted` or near it."""

    x: str
    label: str
    held: str
    wanted: int
    title: str


OVER_SIZE = Axis("request_kib", "Request size (bytes)", "queue_depth", 1, "queue depth {:g}")
OVER_DEPTH = Axis("queue_depth", "Queue depth", "request_kib", 256, "{:g} KiB requests")
COLUMNS = (OVER_SIZE, OVER_DEPTH)


def select(results: Results) -> Selection:
    """The settings with most paths; reads before writes where there are as many."""
    return OVER_IO_PATHS.select(results.io, _are_reads)


def _are_reads(data: pd.DataFrame) -> bool:
    return set(data[IO_OP]) == {"read"}


def subject(data: pd.DataFrame) -> str:
    """The first sentences of the caption."""
    cells = io_cells(data)
    return (
        f"{_each_op(data).capitalize()}s of each I/O path without KV: mean latency and throughput over request size at "
        f"queue depth {held_at(cells, OVER_SIZE):g}, and over queue depth with requests of "
        f"{held_at(cells, OVER_DEPTH):g} KiB."
    )


def plot(data: pd.DataFrame) -> Figure:
    """Two rows (latency, throughput) by two columns (over request size, over queue depth)."""
    figure, panels = new_panels(n_rows=2, n_columns=2, height_in=3.2, per_column=2, sharex="col")
    cells, looks = io_cells(data), _looks(data)
    for (latency, throughput), axis in zip(panels.T, COLUMNS, strict=True):
        at = held_at(cells, axis)
        shown = cells[cells[axis.held] == at]
        for path, look in looks.items():
            _draw(latency, shown[shown["path"] == path], axis.x, "latency_us", look)
            _draw(throughput, shown[shown["path"] == path], axis.x, "gb_per_s", look)
        latency.set_yscale("log")
        throughput.set_ylim(0, HEADROOM * throughput.dataLim.ymax)
        throughput.set_xscale("log", base=2)
        _ticks(throughput, shown[axis.x])
        latency.set_title(axis.title.format(at))
        throughput.set_xlabel(axis.label)
    panels[0, 0].set_ylabel("Mean latency (us)")
    panels[1, 0].set_ylabel(f"{_each_op(data).capitalize()}s (GB/s)")
    add_legend(figure)
    return figure


def held_at(cells: pd.DataFrame, axis: Axis) -> float:
    """The held value of a column of panels: of those that most paths have, the nearest to `wanted` on a log scale."""
    paths = cells.groupby(axis.held)["path"].nunique()
    return float(min(paths[paths == paths.max()].index, key=lambda value: abs(math.log(value / axis.wanted))))


def table(data: pd.DataFrame) -> pd.DataFrame:
    """Every cell of the grid: medians over repetitions."""
    cells = io_cells(data)
    return cells.groupby(["path", "request_kib", "queue_depth"], sort=False).median().reset_index()


def _draw(axes: Axes, cells: pd.DataFrame, x: str, y: str, look: Look) -> None:
    points = summarise(cells, [x], y)
    draw_medians(axes, points, points[x], look)


def _ticks(axes: Axes, values: pd.Series) -> None:
    """One tick for each value measured, a size with its unit."""
    axes.xaxis.set_major_locator(FixedLocator(sorted(values.unique())))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_size if values.name == "request_kib" else _count))


def _count(value: float, position: int) -> str:
    return f"{value:g}"


def _size(kib: float, position: int) -> str:
    return f"{kib:g}K" if kib < 1024 else f"{kib / 1024:g}M"


def _looks(data: pd.DataFrame) -> dict[str, Look]:
    """The paths present in the order from file system to device, with the file system and the kind of device named."""
    file_system = next(iter(optional(data, FILE_SYSTEM).dropna()), "file system")
    loop = data["result.target"].str.contains("loop").any()
    named = {
        "ext4_buffered": f"{file_system} buffered",
        "ext4_direct": f"{file_system} O_DIRECT",
        "block_direct": "block O_DIRECT" + (" (loop)" if loop else ""),
    }
    present = set(data[IO_PATH])
    return {
        path: look._replace(label=named.get(path, look.label)) for path, look in IO_PATHS.items() if path in present
    }


def _each_op(data: pd.DataFrame) -> str:
    return " and ".join(sorted(data[IO_OP].unique()))


FIGURE = FigureSpec(__doc__, select, plot, subject, IO_RUNS, table=table)
