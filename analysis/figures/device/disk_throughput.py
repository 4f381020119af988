"""Paper figure 9: throughput of the disk over time, writes of prefill and reads of decode."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.drawing.layout import add_legend, new_panels
from analysis.drawing.style import looks
from analysis.figures.spec import TRACES, FigureSpec
from analysis.metrics.device_metrics import NS_PER_S, throughput
from analysis.names import REPETITION, SSD, VARIANT
from analysis.results.device_io import DECODE_READ, PREFILL_WRITE, DeviceIO, RequestKind, load_device_io
from analysis.results.load import Results
from analysis.selection.comparison import Selection
from analysis.selection.filters import split_by_ssd
from analysis.selection.traced import RATE, traced

SHOWN = (PREFILL_WRITE, DECODE_READ)
BINS = 80  # over the longest phase shown in a panel
NAME_FONT_PT = 5.5


def select(results: Results) -> Selection:
    """Traced runs at the tight limit, the first repetition of each: time lines cannot be averaged."""
    selection = traced(results)
    in_turn = selection.runs.sort_values(REPETITION, kind="stable")
    one_each = [VARIANT, *(column for column in SSD if column in in_turn)]
    return selection._replace(runs=in_turn.drop_duplicates(one_each))


def subject(data: pd.DataFrame) -> str:
    """The first sentences of the caption."""
    return (
        "Throughput of the disk over time: writes in prefill, and reads in decode from the second iteration on. "
        "A command's bytes are spread evenly from its issue to its completion. Short line at the right: mean of the "
        "phase. Dotted line: highest rate that fio reached on this SSD by a direct path, if measured (io_paths)."
    )


def plot(data: pd.DataFrame) -> Figure:
    """Two rows (prefill, decode) by one column per testbed and SSD."""
    ssds = split_by_ssd(data)
    figure, panels = new_panels(n_rows=len(SHOWN), n_columns=len(ssds), height_in=3.2, sharex="none")
    for column, (name, runs) in zip(panels.T, ssds, strict=True):
        for axes, kind in zip(column, SHOWN, strict=True):
            _draw(axes, runs, kind)
            axes.set_ylabel(f"{kind.label}s (GB/s)")
            axes.set_xlabel(f"Time in {kind.phase} (s)")
        if len(ssds) > 1:
            column[0].set_title(name)
    add_legend(figure, n_columns=2 * len(ssds))
    return figure


def span_ns(io: DeviceIO, kind: RequestKind) -> tuple[int, int]:
    """Begin of a phase's first request and end of its last one, appends included."""
    requests = io.requests[io.requests["phase"] == kind.phase]
    return int(requests["storage_start_ns"].min()), int(requests["storage_end_ns"].max())


def _draw(axes: Axes, runs: pd.DataFrame, kind: RequestKind) -> None:
    by_variant = runs.set_index(VARIANT)["folder"]
    traces = {variant: load_device_io(folder) for variant, folder in by_variant.items()}
    spans = {variant: span_ns(io, kind) for variant, io in traces.items() if len(io.requests_of(kind))}
    bin_ns = max((end - begin for begin, end in spans.values()), default=BINS) / BINS
    for variant, look in looks(spans).items():
        io, (begin, end) = traces[variant], spans[variant]
        commands = io.commands[io.commands["op"] == kind.op]
        line = throughput(commands, begin, end, max(1, round((end - begin) / bin_ns)))
        axes.plot(line["seconds"], line["gb_per_s"], label=look.label, color=look.color, linewidth=0.8)
        mean = throughput(commands, begin, end, 1)["gb_per_s"][0]
        axes.plot((end - begin) / NS_PER_S, mean, color=look.color, marker=0, markersize=7, clip_on=False, zorder=4)
    rate = runs[RATE.format(kind.op)].max()
    if not math.isnan(rate):
        axes.axhline(rate, color="0.45", linestyle=":", linewidth=0.8)
        axes.annotate(
            "fio",
            (1, rate),
            xycoords=("axes fraction", "data"),
            xytext=(-2, -1.5),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=NAME_FONT_PT,
            color="0.35",
        )
    axes.set_xlim(0)
    axes.set_ylim(0, 1.06 * axes.dataLim.ymax)


FIGURE = FigureSpec(__doc__, select, plot, subject, TRACES)
