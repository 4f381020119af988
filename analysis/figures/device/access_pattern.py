"""Paper figure 4: how the engine and the device read the last layers of a decode iteration, and the queues used."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from analysis.drawing.layout import add_legend, new_panels
from analysis.drawing.style import VARIANTS
from analysis.figures.device import lba_pattern
from analysis.figures.spec import TWO_TRACES, FigureSpec
from analysis.metrics.addresses import MIB, with_places
from analysis.metrics.device_metrics import NS_PER_MS
from analysis.names import VARIANT
from analysis.results.device_io import DECODE_READ, PREFILL_WRITE, DeviceIO, load_device_io
from analysis.results.load import Results
from analysis.selection.comparison import Selection

BARS = {PREFILL_WRITE: ("Prefill writes", "0.75"), DECODE_READ: ("Decode reads", "0.25")}
BAR_WIDTH = 0.38
LABELS = ("Engine: tensor\nbytes (MiB)", "Device:\naddress (MiB)", "Commands")


def select(results: Results) -> Selection:
    """The pair of lba_pattern, with several queues first if there are any: a virtual disk has one."""
    return lba_pattern.pair(results, _spread)


def _spread(runs: pd.DataFrame) -> bool:
    return any(load_device_io(folder).commands["queue"].nunique() > 1 for folder in runs["folder"])


def subject(data: pd.DataFrame) -> str:
    """The first sentences of the caption."""
    return (
        f"Top: the engine's reads of the last {lba_pattern.LAYERS} layers' tensors in one decode iteration; each line "
        "goes from begin to end of one read, and the tensors are in order. Middle: the device's commands for these "
        "reads at their time of issue, by address (gaps between tensors are closed). Bottom: share of all commands in "
        f"each submission queue that was used: {_queues(data)}."
    )


def _queues(data: pd.DataFrame) -> str:
    """The number of queues that the device's commands used, of any program, in words."""
    used = max(load_device_io(folder).commands["queue"].nunique() for folder in data["folder"])
    return "one, since the disk has no more" if used == 1 else f"{used} queues"


def plot(data: pd.DataFrame) -> Figure:
    """Three rows (tensors, addresses, queues) by one column per variant."""
    figure, panels = new_panels(3, len(data), height_in=4.0, per_column=len(data), sharex=False)
    for (tensors, addresses, queues), (_, run) in zip(panels.T, data.iterrows(), strict=True):
        io = load_device_io(run["folder"])
        begin_ns = _draw_requests(tensors, lba_pattern.window(io.requests_of(DECODE_READ), DECODE_READ))
        _draw_commands(addresses, lba_pattern.window(io.commands_of(DECODE_READ), DECODE_READ), begin_ns)
        addresses.set_xlim(tensors.get_xlim())
        addresses.set_xlabel("Time (ms)")
        _draw_queues(queues, io)
        tensors.set_title(VARIANTS[run[VARIANT]].label)
    for axes, label in zip(panels[:, 0], LABELS, strict=True):
        axes.set_ylabel(label)
    add_legend(figure, n_columns=4)
    return figure


def _draw_requests(axes: Axes, requests: pd.DataFrame) -> int:
    """Draw reads of tensors, one above the other, and return the time that is 0 on the axis."""
    requests = requests.sort_values(["layer", "kind"])
    begin_ns = int(requests["storage_start_ns"].min())
    bottom = (requests["bytes"].cumsum() - requests["bytes"]) / MIB
    start, end = ((requests[name] - begin_ns) / NS_PER_MS for name in ("storage_start_ns", "storage_end_ns"))
    top = bottom + requests["bytes"] / MIB
    for kind, (label, color) in lba_pattern.KINDS.items():
        of = requests["kind"] == kind
        lines = lba_pattern.segments(start[of], bottom[of], end[of], top[of])
        axes.add_collection(LineCollection(lines, colors=color, linewidths=1.6, label=label))
    axes.autoscale_view()
    axes.set_xlim(0)
    return begin_ns


def _draw_commands(axes: Axes, commands: pd.DataFrame, begin_ns: int) -> None:
    """Draw commands as vertical lines over their addresses."""
    commands = with_places(commands)
    at, place = (commands["issue_ns"] - begin_ns) / NS_PER_MS, commands["place_mib"]
    for kind, (_, color) in lba_pattern.KINDS.items():
        of = commands["kind"] == kind
        lines = lba_pattern.segments(at[of], place[of], at[of], (place + commands["bytes"] / MIB)[of])
        axes.add_collection(LineCollection(lines, colors=color, linewidths=1.6))
    axes.autoscale_view()


def _draw_queues(axes: Axes, io: DeviceIO) -> None:
    """Share of the commands of each request kind by queue, from 0 to 100 %."""
    for turn, (kind, (label, color)) in enumerate(BARS.items()):
        shares = io.commands_of(kind)["queue"].value_counts(normalize=True).sort_index()
        axes.bar(shares.index + (turn - 0.5) * BAR_WIDTH, shares, BAR_WIDTH, color=color, label=label)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    first, last = io.commands["queue"].min(), io.commands["queue"].max()
    axes.set_xlim(first - 0.9, last + 0.9)
    axes.set_xlabel("Submission queue")


FIGURE = FigureSpec(__doc__, select, plot, subject, TWO_TRACES)
