"""Paper figure 11: time per KB of device commands by the queue depth at their issue, 5th to 95th percentile."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.drawing.layout import add_legend, new_panels, plain_log_ticks
from analysis.drawing.style import Look, looks
from analysis.figures.spec import TRACES, FigureSpec
from analysis.metrics.device_metrics import DEPTH_BINS, by_depth
from analysis.names import VARIANT
from analysis.results.device_io import DECODE_READ, PREFILL_WRITE, RequestKind, load_device_io
from analysis.selection.filters import split_by_ssd
from analysis.selection.traced import traced

SHOWN = (DECODE_READ, PREFILL_WRITE)
MIN_COMMANDS = 20  # of a bin, for its 5th and 95th percentile to mean anything
STEP = 0.19  # between the variants of a bin, as a share of its width


def subject(data: pd.DataFrame) -> str:
    """The first sentences of the caption."""
    return (
        "Time from issue to completion per KB (1000 bytes) of the device's commands, by the number of commands in "
        "flight when each was issued, itself included: median, and 5th to 95th percentile as a bar. "
        f"Bins of fewer than {MIN_COMMANDS} commands are left out."
    )


def plot(data: pd.DataFrame) -> Figure:
    """Two rows (decode reads, prefill writes) by one column per testbed and SSD."""
    ssds = split_by_ssd(data)
    figure, panels = new_panels(n_rows=len(SHOWN), n_columns=len(ssds), height_in=3.2)
    for column, (name, runs) in zip(panels.T, ssds, strict=True):
        tables = [bins(runs, kind) for kind in SHOWN]
        n_bins = 1 + max(DEPTH_BINS.index(low) for rows in tables for low in [1, *rows["depth"]])
        for axes, kind, rows in zip(column, SHOWN, tables, strict=True):
            _draw(axes, rows, looks(data[VARIANT]))
            for turn in range(1, n_bins, 2):
                axes.axvspan(turn - 0.5, turn + 0.5, color="0.96", zorder=0)
            axes.set_ylabel(f"{kind.label}s\n(us/KB)")
        if len(ssds) > 1:
            column[0].set_title(name)
        column[-1].set_xlabel("Commands in flight at issue")
        column[-1].set_xticks(range(n_bins), [_bin_name(low) for low in DEPTH_BINS[:n_bins]])
        column[-1].set_xlim(-0.5, n_bins - 0.5)
    add_legend(figure, n_columns=2 * len(ssds))
    return figure


def table(data: pd.DataFrame) -> pd.DataFrame:
    """All bins of each SSD and request kind."""
    return pd.concat(
        [bins(runs, kind).assign(ssd=ssd, request=kind.label) for ssd, runs in split_by_ssd(data) for kind in SHOWN]
    )


def bins(runs: pd.DataFrame, kind: RequestKind) -> pd.DataFrame:
    """Medians over repetitions: columns variant, depth (lower end), p5, median, p95 (us/KB), commands."""
    rows = [
        by_depth(load_device_io(folder).commands_of(kind)).assign(variant=variant)
        for variant, folder in zip(runs[VARIANT], runs["folder"], strict=True)
    ]
    merged = pd.concat([frame[frame["commands"] >= MIN_COMMANDS] for frame in rows])
    return merged.groupby(["variant", "depth"])[["p5", "median", "p95", "commands"]].median().reset_index()


def _draw(axes: Axes, rows: pd.DataFrame, variants: dict[str, Look]) -> None:
    for turn, (variant, look) in enumerate(variants.items()):
        own = rows[rows["variant"] == variant]
        place = [DEPTH_BINS.index(low) + (turn - (len(variants) - 1) / 2) * STEP for low in own["depth"]]
        bars = [own["median"] - own["p5"], own["p95"] - own["median"]]
        axes.errorbar(place, own["median"], yerr=bars, label=look.label, elinewidth=1, **look.mark)
    axes.set_yscale("log")
    plain_log_ticks(axes.yaxis)
    axes.grid(visible=False, axis="x")


def _bin_name(low: int) -> str:
    turn = DEPTH_BINS.index(low)
    if turn == len(DEPTH_BINS) - 1:
        return f"{low}+"
    high = DEPTH_BINS[turn + 1] - 1
    return f"{low}" if high == low else f"{low}-{high}"


FIGURE = FigureSpec(__doc__, traced, plot, subject, TRACES, table=table)
