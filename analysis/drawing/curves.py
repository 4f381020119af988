"""Curves over the memory limit: one per variant, on an axis in the paper's units with the working set marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator, PercentFormatter

from analysis.drawing.style import Look, looks
from analysis.metrics.stats import summarise
from analysis.names import OVERHEAD_GB, VARIANT

MARK_FONT_PT = 5.5


def draw_curves(axes: Axes, data: pd.DataFrame, metric: str) -> None:
    """One curve per variant."""
    by_variant = data.groupby(VARIANT)
    for name, look in looks(data[VARIANT]).items():
        draw_curve(axes, by_variant.get_group(name), metric, look)


def draw_curve(axes: Axes, data: pd.DataFrame, metric: str, look: Look) -> None:
    """Draw medians over the repetitions at each limit."""
    points = summarise(data, ["memory_gb"], metric)
    draw_medians(axes, points, points["memory_gb"], look, clip_on=False)


def draw_medians(
    axes: Axes, points: pd.DataFrame, at: pd.Series, look: Look, *, sideways: bool = False, **style: Any
) -> None:
    """Draw the medians of `summarise` at places of the other axis, with intervals if a point has more than one run."""
    medians = points["median"]
    bars = [medians - points["low"], points["high"] - medians] if (points["runs"] > 1).any() else None
    places: dict[str, Any] = (
        {"x": medians, "y": at, "xerr": bars} if sideways else {"x": at, "y": medians, "yerr": bars}
    )
    axes.errorbar(**places, label=look.label, elinewidth=0.7, zorder=3, **look.line | style)


def latency_axis(axes: Axes, label: str) -> None:
    """Start a latency axis at zero, so that heights compare as times do."""
    axes.set_ylabel(label)
    axes.set_ylim(0, 1.05 * axes.dataLim.ymax)


def hit_rate_axis(axes: Axes) -> None:
    """Make an axis of hit rates from 0 to 100 %."""
    axes.set_ylabel("Hit rate")
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))


def finish_memory_axis(panels: Sequence[Axes], data: pd.DataFrame, mark_height: float) -> None:
    """Finish panels that share an x axis: label below the last, budget / KV above the first, a line where the KV fits.

    The line is labelled in the first panel, `mark_height` (0 to 1) above its bottom, where no curve passes.
    """
    panels[-1].set_xlabel("Memory limit (GB, paper's scale)")
    panels[-1].xaxis.set_major_locator(MultipleLocator(1))
    for axes in panels:
        axes.axvline(full_hit_gb(data), color="0.45", linewidth=0.7, linestyle=(0, (4, 2)), zorder=1)
    panels[0].annotate(
        "KV fits",
        xy=(full_hit_gb(data), mark_height),
        xycoords=("data", "axes fraction"),
        xytext=(3, 0),
        textcoords="offset points",
        color="0.35",
        fontsize=MARK_FONT_PT,
        va="center",
    )
    to_ratio, to_memory = ratio_axis(data)
    top = panels[0].secondary_xaxis("top", functions=(to_ratio, to_memory))
    top.set_xlabel("Page-cache budget / KV working set")
    top.xaxis.set_major_locator(MultipleLocator(0.2))


def full_hit_gb(data: pd.DataFrame) -> float:
    """The limit from which the whole KV fits: the KV working set plus the assumed overhead."""
    return float((data["working_set_gb"] + data[OVERHEAD_GB]).iloc[0])


def ratio_axis(data: pd.DataFrame) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Limit in GB -> budget / KV, and back."""
    kv_gb, overhead_gb = float(data["working_set_gb"].iloc[0]), float(data[OVERHEAD_GB].iloc[0])
    return lambda limit_gb: (limit_gb - overhead_gb) / kv_gb, lambda ratio: ratio * kv_gb + overhead_gb
