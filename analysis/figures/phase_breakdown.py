"""Paper figure 2: where the time of prefill and decode goes, at a high and at a low memory limit."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from analysis.drawing.layout import add_legend, new_panels
from analysis.drawing.style import PHASE_PARTS, looks
from analysis.figures.spec import FigureSpec
from analysis.names import VARIANT
from analysis.results.load import Results, optional
from analysis.selection.comparison import OVER_LIMITS, Selection
from analysis.selection.filters import limited, one_testbed

PHASES = ("prefill", "decode")
WALL = "result.phases.{}.wall_s"
LIMITS = "M-High and M-Low are the highest and the lowest limit measured"
SUBJECT = (
    "Where the wall time of prefill and decode goes: computing, waiting for storage (a transfer from or to storage is "
    "under way), waiting for the link (only copies over the link are under way), and other. Shares are of the wall "
    f"time of all runs of a bar; its median in seconds is above the bar. {LIMITS}."
)


def select(results: Results) -> Selection:
    """The largest comparable set at its lowest and its highest limit, of the machine itself if it has one."""
    runs = limited(results.runs)
    runs = runs[optional(runs, WALL.format("decode")).notna()]
    chosen = OVER_LIMITS.select(one_testbed(runs))
    ends = {chosen.runs["memory_gb"].min(), chosen.runs["memory_gb"].max()} if len(chosen.runs) else set()
    if len(ends) < 2:
        return chosen._replace(runs=runs.head(0))
    return chosen._replace(runs=chosen.runs[chosen.runs["memory_gb"].isin(ends)])


def subject(data: pd.DataFrame) -> str:
    """The first sentences of the caption."""
    return " ".join([SUBJECT, *_worth(data)])


def _worth(data: pd.DataFrame) -> list[str]:
    """A sentence on whether offloading pays; none for runs without compute time."""
    known = data.dropna(subset=["wait_over_recompute"])
    each = [
        f"{label} {' and '.join(f'{ratio:.0%}' for ratio in runs.groupby('memory_gb')['wait_over_recompute'].median())}"
        for variant, (label, *_) in looks(known[VARIANT]).items()
        for runs in [known[known[VARIANT] == variant]]
    ]
    subject = "Time that a decode iteration waits for the KV, over the time to recompute it, at M-Low and M-High"
    return [f"{subject}: {', '.join(each)} (below 100 % offloading pays)."] if each else []


def plot(data: pd.DataFrame) -> Figure:
    """One row per phase; a bar for each variant and limit."""
    figure, panels = new_panels(n_rows=2, height_in=3.4)
    for axes, phase in zip(panels[:, 0], PHASES, strict=True):
        _draw(axes, data, phase)
        axes.set_ylabel(f"Share of {phase}")
        axes.set_ylim(0, 1.15)
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    _name_bars(panels[-1, 0], data)
    add_legend(figure, n_columns=2)
    return figure


def shares(runs: pd.DataFrame, phase: str) -> pd.Series:
    """Each part's share of the wall time of all runs together, 0 to 1. Medians would not add up to 1."""
    wall_s = runs[WALL.format(phase)].sum()
    return pd.Series({part: runs[f"result.phases.{phase}.{part}_s"].sum() / wall_s for part in PHASE_PARTS})


def _draw(axes: Axes, data: pd.DataFrame, phase: str) -> None:
    for place, (_, _, runs) in enumerate(_bars(data)):
        bottom = 0.0
        for part, (label, color, hatch) in PHASE_PARTS.items():
            share = shares(runs, phase)[part]
            axes.bar(
                place,
                share,
                0.72,
                bottom,
                label=label,
                color=color,
                hatch=hatch,
                edgecolor="0.25",
                linewidth=0.4,
                zorder=3,
            )
            bottom += share
        wall_s = runs[WALL.format(phase)].median()
        axes.text(place, bottom + 0.015, f"{wall_s:.2g} s", ha="center", va="bottom", fontsize=5.5)
    axes.grid(axis="x", visible=False)


def _bars(data: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """(variant's label, limit's label, runs), in the order of the bars."""
    low, high = data["memory_gb"].min(), data["memory_gb"].max()
    names = {high: f"M-High\n{high:g} GB", low: f"M-Low\n{low:g} GB"}
    return [
        (look.label, label, runs)
        for variant, look in looks(data[VARIANT]).items()
        for limit, label in names.items()
        if len(runs := data[(data[VARIANT] == variant) & (data["memory_gb"] == limit)])
    ]


def _name_bars(axes: Axes, data: pd.DataFrame) -> None:
    bars = _bars(data)
    axes.set_xticks(range(len(bars)), [limit for _, limit, _ in bars], fontsize=5.5)
    axes.tick_params(axis="x", length=0)
    for variant in dict.fromkeys(label for label, _, _ in bars):
        places = [place for place, (label, _, _) in enumerate(bars) if label == variant]
        axes.annotate(
            variant.replace("-Only", "-\nOnly"),
            xy=(sum(places) / len(places), 0),
            xycoords=("data", "axes fraction"),
            xytext=(0, -21),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=6,
        )


FIGURE = FigureSpec(__doc__, select, plot, subject)
