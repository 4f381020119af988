"""Paper figure 3: where the time of a request of the page-cache path goes, and how busy it keeps the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from analysis.drawing.layout import add_legend, new_panels
from analysis.figures.spec import TRACES, FigureSpec
from analysis.metrics.device_metrics import busy_rate
from analysis.metrics.layer_times import LAYERS, is_split, layer_us, seen_share
from analysis.names import VARIANT
from analysis.results.device_io import KINDS, load_device_io
from analysis.results.documents import ResultsError
from analysis.results.load import Results
from analysis.selection.comparison import Selection
from analysis.selection.filters import split_by_ssd
from analysis.selection.left_out import number_of_runs
from analysis.selection.traced import traced_of
from dualblade.run.run_files import RunFile

BASELINE = "baseline"
HEIGHT = 0.62  # of a bar, as a share of a request kind's height
NAMES = {
    "vfs": "VFS, page cache",
    "file_system": "File system",
    "block": "Block layer",
    "driver": "Driver",
    "device": "Device",
    "driver_and_device": "Driver and device",
}
COLORS = dict(zip(LAYERS, ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#000000", "#000000"), strict=True))
HATCHES = dict(zip(LAYERS, ("", "////", "....", "xxxx", "", "\\\\\\\\"), strict=True))
APART = (
    "On NVMe the driver's functions separate driver and device. Driver: from the creation of the command "
    "(nvme_setup_cmd) to its issue. Device: from there until the driver ends the request (nvme_complete_rq), which "
    "includes the handling of the interrupt and the unmapping of the memory."
)
TOGETHER = "Tracepoints of the block layer do not separate driver and device."


def select(results: Results) -> Selection:
    """The Baseline's runs whose layers were traced; those that separate driver and device, if an SSD has any."""
    runs = results.runs
    chosen = (runs[VARIANT] == BASELINE) & runs["folder"].map(lambda run: (run / RunFile.IO_LAYERS).exists())
    runs = runs[chosen.astype(bool)]
    faults = runs["folder"].map(_fault).dropna()
    selection = traced_of(runs.drop(index=faults.index), results)
    best = pd.concat([selection.runs.head(0), *(_most_detailed(runs) for _, runs in split_by_ssd(selection.runs))])
    unsplit = selection.runs.drop(index=best.index)
    sentence = f"{number_of_runs(unsplit)} whose trace does not tell driver and device apart"
    left_out = (*faults, *selection.left_out, *([sentence] if len(unsplit) else []))
    return selection._replace(runs=best, left_out=left_out)


def _fault(run_dir: Path) -> str | None:
    """Why a run's layers cannot be read, in a sentence; None if they can."""
    try:
        is_split(run_dir)
    except ResultsError as error:
        return str(error)
    return None


def _most_detailed(runs: pd.DataFrame) -> pd.DataFrame:
    split = runs["folder"].map(is_split).astype(bool)
    return runs[split] if split.any() else runs


def subject(data: pd.DataFrame) -> str:
    """The first sentences of the caption."""
    shares = ", ".join(
        f"{row.request.lower()} {row.seen:.0%}" for row in table(data).dropna(subset="seen").itertuples()
    )
    return (
        "Mean time of the Baseline's device commands in each layer of the page-cache path, by request kind, and the "
        "share of the requests' time in which the device had a command in flight. VFS: from the entry into the kernel, "
        f"or from the previous submission, to the file system's look-up of the block addresses. {_split(data)} "
        f"Share of commands that were traced through all layers: {shares}."
    )


def _split(data: pd.DataFrame) -> str:
    """Sentences on whether driver and device were separated."""
    kinds = set(data["folder"].map(is_split))
    return " ".join(text for split, text in ((True, APART), (False, TOGETHER)) if split in kinds)


def table(data: pd.DataFrame) -> pd.DataFrame:
    """One row per SSD and request kind: mean microseconds by layer, busy rate, share seen; medians over repetitions."""
    rows = [
        {
            "ssd": ssd,
            "request": kind.label,
            **layer_us(folder, kind).mean(),
            "busy_rate": busy_rate(load_device_io(folder), kind),
            "seen": seen_share(folder, kind),
        }
        for ssd, runs in split_by_ssd(data)
        for folder in runs["folder"]
        for kind in KINDS
    ]
    return pd.DataFrame(rows).groupby(["ssd", "request"], sort=False).median().reset_index()


def plot(data: pd.DataFrame) -> Figure:
    """Two panels (share of time by layer, busy rate) by one row per testbed and SSD; request kinds as bars."""
    rows, ssds = table(data), split_by_ssd(data)
    figure, panels = new_panels(len(ssds), 2, height_in=0.7 + 1.3 * len(ssds), per_column=2, sharex="col")
    for (layers, busy), (ssd, _) in zip(panels, ssds, strict=True):
        own = rows[rows["ssd"] == ssd].reset_index(drop=True)
        _draw_layers(layers, own)
        busy.barh(own.index, own["busy_rate"], height=HEIGHT, color="0.45")
        busy.set_yticks([])
        for axes in (layers, busy):
            axes.set_ylim(len(own) - 0.5, -0.5)
            axes.set_xlim(0, 1)
            axes.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=""))
            axes.grid(visible=False, axis="y")
        if len(ssds) > 1:
            layers.set_title(ssd)
    panels[-1, 0].set_xlabel("Time by layer (%)")
    panels[-1, 1].set_xlabel("Device busy (%)")
    add_legend(figure)
    return figure


def _draw_layers(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw shares of the mean time of a command; the time itself is in the label of the request kind."""
    present = [layer for layer in LAYERS if layer in rows and rows[layer].notna().any()]
    totals_us = rows[present].sum(axis=1)
    left = pd.Series(0.0, index=rows.index)
    for layer in present:
        looks: dict[str, Any] = {
            "color": COLORS[layer],
            "hatch": HATCHES[layer],
            "edgecolor": "white",
            "linewidth": 0.3,
        }
        share = (rows[layer] / totals_us).fillna(0)
        axes.barh(rows.index, share, left=left, height=HEIGHT, label=NAMES[layer], **looks)
        left += share
    labels = [f"{kind}\n{_duration(us)}" for kind, us in zip(rows["request"], totals_us, strict=True)]
    axes.set_yticks(rows.index, labels)


def _duration(us: float) -> str:
    if us == 0:
        return "none"
    return f"{us / 1000:.1f} ms" if us >= 1000 else f"{us:.0f} us"


FIGURE = FigureSpec(__doc__, select, plot, subject, TRACES, table=table)
