"""Paper figure 12: decode latency with the adaptive pipeline off and on, over the share of the layers in DRAM."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, PercentFormatter

from analysis.drawing.curves import draw_medians, latency_axis
from analysis.drawing.layout import add_legend, new_panels
from analysis.drawing.style import PIPELINES, Look
from analysis.figures.spec import FigureSpec, overlap_runs
from analysis.metrics.paired_change import changes
from analysis.metrics.stats import summarise
from analysis.names import KNOB, PACE_NAME, PIPELINE, STORAGE
from analysis.results.load import Results, optional
from analysis.selection.comparison import Selection, by_storage, curves_by_storage
from analysis.selection.filters import warm

POINT = [STORAGE, "alpha", PIPELINE]
OFF = "intra"  # two threads that read at once in front of one DMA engine, which is also what happens without any policy
SUBJECT = (
    "Decode latency per token over alpha, the share of the layers whose KV is in DRAM (Group 1), with the "
    "adaptive pipeline off (Overlap-Intra) and on{}. Below: the change against off. Group 1 is read from the host's "
    "own page cache."
)


def select(results: Results) -> Selection:
    """Runs whose share of layers was given, that differ only in storage, alpha and pipeline."""
    runs = warm(results.runs)
    given = optional(runs, KNOB).astype(str).str.endswith("%")
    runs = runs[given & optional(runs, PIPELINE).isin(PIPELINES)]
    return curves_by_storage(by_storage("alpha").select(runs[runs["alpha"].notna()]), _is_a_curve)


def _is_a_curve(runs: pd.DataFrame) -> bool:
    """Whether there are two values of alpha, and another pipeline than off."""
    return runs["alpha"].nunique() > 1 and OFF in set(runs[PIPELINE]) and runs[PIPELINE].nunique() > 1


def subject(data: pd.DataFrame) -> str:
    """The first sentences of the caption."""
    beyond = ", and with overlap_full, which is beyond the paper" if "overlap_full" in set(data[PIPELINE]) else ""
    return SUBJECT.format(beyond)


def plot(data: pd.DataFrame) -> Figure:
    """Two rows (latency, change against off) by one column per storage."""
    storages = list(data.groupby(STORAGE))
    figure, panels = new_panels(n_rows=2, n_columns=len(storages), height_in=3.2, per_column=2)
    for (latency, change), (_, runs) in zip(panels.T, storages, strict=True):
        for name, look in _looks(data).items():
            _draw(latency, runs[runs[PIPELINE] == name], "decode_s_per_token", look)
            if name != OFF:
                pairs = changes(runs, PIPELINE, name, OFF, "decode_s_per_token", ["alpha"])
                _draw(change, pairs, "change", look)
        latency_axis(latency, "")
        latency.set_title(_title(runs))
        change.axhline(0, color="0.45", linewidth=0.7, zorder=1)
        change.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
        change.set_xlabel("alpha: layers in DRAM")
        change.xaxis.set_major_locator(FixedLocator([0, 0.5, 1]))
    panels[0, 0].set_ylabel("Decode (s/token)")
    panels[1, 0].set_ylabel("Change")
    _share_scale(list(panels[1]))
    add_legend(figure, n_columns=min(3, 1 + len(storages)))
    return figure


def _draw(axes: Axes, data: pd.DataFrame, metric: str, look: Look) -> None:
    points = summarise(data, ["alpha"], metric)
    draw_medians(axes, points, points["alpha"], look, clip_on=False)


def _share_scale(panels: list[Axes]) -> None:
    """Give all panels one scale of change, so that storages compare."""
    low = min(axes.get_ylim()[0] for axes in panels)
    high = max(axes.get_ylim()[1] for axes in panels)
    for axes in panels:
        axes.set_ylim(low, max(high, 0.02))


def _looks(data: pd.DataFrame) -> dict[str, Look]:
    present = set(data[PIPELINE])
    looks = {name: look for name, look in PIPELINES.items() if name in present}
    return {name: look._replace(label=f"off ({look.label})") if name == OFF else look for name, look in looks.items()}


def _title(runs: pd.DataFrame) -> str:
    paced = optional(runs, PACE_NAME).dropna()
    return f"{paced.iloc[0]} (emulated)" if len(paced) else "this host's disk"


FIGURE = FigureSpec(__doc__, select, plot, subject, overlap_runs(POINT))
