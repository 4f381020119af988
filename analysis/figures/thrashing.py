"""Paper figure 1: the Baseline over memory limits: latency jumps and hits vanish once the KV no longer fits."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.drawing.curves import draw_curve, finish_memory_axis, hit_rate_axis, latency_axis
from analysis.drawing.layout import add_legend, new_panels
from analysis.drawing.style import VARIANTS, Look
from analysis.figures.spec import FigureSpec
from analysis.names import VARIANT
from analysis.results.load import Results
from analysis.selection.comparison import OVER_LIMITS_AND_LRUS, Selection, curve
from analysis.selection.filters import limited, one_testbed, warm

SUBJECT = (
    "Baseline over memory limits: prefill latency, decode latency per token, and hit rate of decode reads. "
    "Dashed line: the limit from which the whole KV fits."
)
BASELINE = VARIANTS["baseline"]


def select(results: Results) -> Selection:
    """The Baseline's runs. The kernel's LRU moves the cliff, so each LRU has a curve of its own."""
    runs = one_testbed(warm(limited(results.runs)))
    return curve(OVER_LIMITS_AND_LRUS.select(runs[runs[VARIANT] == "baseline"]))


def plot(data: pd.DataFrame) -> Figure:
    """Prefill, decode and hit rate over one memory axis."""
    figure, panels = new_panels(n_rows=3, height_in=3.8)
    prefill, decode, hit_rate = panels[:, 0]
    for look, runs in _by_lru(data):
        draw_curve(prefill, runs, "prefill_s", look)
        draw_curve(decode, runs, "decode_s_per_token", look)
        draw_curve(hit_rate, runs, "decode_hit_rate", look)
    latency_axis(prefill, "Prefill (s)")
    latency_axis(decode, "Decode (s/token)")
    hit_rate_axis(hit_rate)
    finish_memory_axis((prefill, decode, hit_rate), data, mark_height=0.12)
    add_legend(figure)
    return figure


def _by_lru(data: pd.DataFrame) -> list[tuple[Look, pd.DataFrame]]:
    """One look per LRU, which the legend names if there is more than one."""
    groups = list(data.groupby("lru"))
    if len(groups) == 1:
        return [(BASELINE, data)]
    lines = ("-", "--", ":")
    return [
        (BASELINE._replace(label=f"Baseline, {name} LRU", linestyle=lines[turn % len(lines)], hollow=turn > 0), runs)
        for turn, (name, runs) in enumerate(groups)
    ]


FIGURE = FigureSpec(__doc__, select, plot, SUBJECT)
