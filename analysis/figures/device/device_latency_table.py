"""Paper table 8: latency of requests and of device commands, the device's busy rate and utilisation, at 2 GB."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from analysis.drawing.layout import add_legend, new_panels
from analysis.drawing.style import Look, looks
from analysis.figures.spec import TRACES, FigureSpec
from analysis.metrics.device_metrics import metrics_of, utilisation
from analysis.names import VARIANT
from analysis.results.device_io import KINDS
from analysis.selection.filters import split_by_ssd
from analysis.selection.traced import RATE, traced

LATENCIES = {"request_ms": "Request (ms)", "command_us": "Command (us)"}
BUSY, UTILISATION = "busy_rate", "utilisation"
MEASURES = (
    *(f"{name}.{value}" for name in (*LATENCIES, "us_per_kb") for value in ("mean", "p50", "p99")),
    *(BUSY, "gb_per_s"),
)
DEVICE_RATE = "device_gb_per_s"
NOT_MEASURED = "not measured"
UTILISATION_MARK: dict[str, Any] = {
    "linestyle": "none",
    "marker": "D",
    "markersize": 2.4,
    "markerfacecolor": "white",
    "markeredgecolor": "black",
    "markeredgewidth": 0.4,
    "zorder": 5,
}
ROW = 0.8  # share of a request kind's height that its variants fill, one below the other


def subject(data: pd.DataFrame) -> str:
    """The first sentences of the caption."""
    return (
        "Latency of a request (the transfer of a tensor; in decode writes, of one token's row), latency of a device "
        "command, and the share of the requests' time in which the device had a command in flight. "
        "Marker: mean; bar: median to 99th percentile. "
        f"{_utilisation(data)} The Baseline's commands are smaller than those of the direct "
        "path: see the time per KB in the table beside this figure."
    )


def table(data: pd.DataFrame) -> pd.DataFrame:
    """One row per SSD, request kind and variant: medians over repetitions of all that is measured.

    `device_gb_per_s` is the device's own rate by fio; it and `utilisation` are the text "not measured" if fio
    did not measure the same storage on the same testbed.
    """
    medians = _medians(data)
    unknown = medians[DEVICE_RATE].isna()
    shown = {name: medians[name].astype(object).mask(unknown, NOT_MEASURED) for name in (DEVICE_RATE, UTILISATION)}
    return medians.assign(**shown)


def _medians(data: pd.DataFrame) -> pd.DataFrame:
    """The table, with missing values as not a number."""
    rows = [
        {
            "ssd": ssd,
            "request": kind.label,
            "variant": run[VARIANT],
            **_of_kind(metrics_of(run["folder"]), f"{kind.phase}_{kind.op}", run[RATE.format(kind.op)]),
        }
        for ssd, runs in split_by_ssd(data)
        for _, run in runs.iterrows()
        for kind in KINDS
    ]
    keys = ["ssd", "request", "variant"]
    order = {name: turn for turn, name in enumerate(looks(data[VARIANT]))}
    medians = pd.DataFrame(rows).groupby(keys, sort=False).median().reset_index()
    return medians.sort_values("variant", key=lambda names: names.map(order), kind="stable").sort_values(
        ["ssd", "request"], key=lambda names: names.map(_place), kind="stable", ignore_index=True
    )


def plot(data: pd.DataFrame) -> Figure:
    """Three panels (request, command, busy rate) by one row per testbed and SSD; request kinds as groups of rows."""
    rows, ssds = _medians(data), split_by_ssd(data)
    figure, panels = new_panels(len(ssds), 3, height_in=0.6 + 2.2 * len(ssds), per_column=3, sharex="col", sharey=True)
    variants = looks(data[VARIANT])
    for (*latencies, busy), (ssd, _) in zip(panels, ssds, strict=True):
        own = rows[rows["ssd"] == ssd]
        for axes, name in zip(latencies, LATENCIES, strict=True):
            _draw_latency(axes, own, name, variants)
        _draw_busy(busy, own, variants)
        latencies[0].set_yticks(range(len(KINDS)), [kind.label.replace(" ", "\n") for kind in KINDS])
        latencies[0].set_ylim(len(KINDS) - 0.5, -0.5)
        if len(ssds) > 1:
            latencies[1].set_title(ssd)
    for axes, text in zip(panels[-1], (*LATENCIES.values(), "Busy, utilised (%)"), strict=True):
        axes.set_xlabel(text)
    add_legend(figure)
    return figure


def _draw_latency(axes: Axes, rows: pd.DataFrame, name: str, variants: dict[str, Look]) -> None:
    for variant, look, place in _rows(variants):
        own = rows[rows["variant"] == variant].set_index("request").reindex([kind.label for kind in KINDS])
        y = [turn + place for turn in range(len(KINDS))]
        axes.hlines(y, own[f"{name}.p50"], own[f"{name}.p99"], color=look.color, linewidth=1.6, alpha=0.55)
        axes.plot(own[f"{name}.mean"], y, label=look.label, **look.mark)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high)))  # whole decades, to have labels
    axes.xaxis.set_major_locator(LogLocator(numticks=4))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=False, axis="y")


def _draw_busy(axes: Axes, rows: pd.DataFrame, variants: dict[str, Look]) -> None:
    for variant, look, place in _rows(variants):
        own = rows[rows["variant"] == variant].set_index("request").reindex([kind.label for kind in KINDS])
        y = [turn + place for turn in range(len(KINDS))]
        axes.barh(y, own[BUSY], height=ROW / len(variants), color=look.color, edgecolor="white", linewidth=0.3)
        axes.plot(own[UTILISATION], y, **UTILISATION_MARK)
    axes.set_xlim(0, max(1, 1.05 * rows[UTILISATION].max()))
    axes.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=""))
    axes.grid(visible=False, axis="y")


def _utilisation(data: pd.DataFrame) -> str:
    """A sentence on the marks in the bars, or on fio's missing measurement of the device."""
    known = [op for op in ("read", "write") if data[RATE.format(op)].notna().any()]
    if not known:
        return "Utilisation was not measured: it needs fio's rate of the same storage (experiment io_paths)."
    return (
        "White mark: utilisation, the rate during the requests over the highest rate that fio reached by a direct "
        f"path on the same testbed and storage ({' and '.join(f'{op}s' for op in known)})."
    )


def _rows(variants: dict[str, Look]) -> list[tuple[str, Look, float]]:
    """The variants, and how far below the middle of a request kind each is drawn."""
    step = ROW / len(variants)
    return [
        (variant, look, (turn - (len(variants) - 1) / 2) * step)
        for turn, (variant, look) in enumerate(variants.items())
    ]


def _of_kind(record: Mapping[str, float], kind: str, device_gb_per_s: float) -> dict[str, float]:
    measured = {measure: record[_inserted(measure, kind)] for measure in MEASURES}
    used = utilisation(measured["gb_per_s"], device_gb_per_s)
    return {**measured, UTILISATION: used, DEVICE_RATE: device_gb_per_s}


def _inserted(measure: str, kind: str) -> str:
    name, _, value = measure.partition(".")
    return f"{name}.{kind}.{value}" if value else f"{name}.{kind}"


def _place(label: object) -> object:
    labels = [kind.label for kind in KINDS]
    return labels.index(label) if label in labels else label


FIGURE = FigureSpec(__doc__, traced, plot, subject, TRACES, table=table)
