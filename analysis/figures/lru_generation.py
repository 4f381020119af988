"""The page-cache cliff under the classic and the multi-generational LRU: decode latency and hit rate over memory."""

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
from analysis.selection.filters import GUEST, limited, of_testbed, warm

SUBJECT = (
    "Decode latency per token and hit rate of decode reads over memory limits, with the kernel's classic LRU and with "
    "its multi-generational one, which is on in the paper's system. Dashed line: the limit from which the "
    "whole KV fits."
)
SHOWN = ("baseline", "dual_blade")


def select(results: Results) -> Selection:
    """Runs in the guest, where the LRU can be chosen; none unless both LRUs were measured."""
    runs = of_testbed(warm(limited(results.runs)), GUEST)
    selection = curve(OVER_LIMITS_AND_LRUS.select(runs[runs[VARIANT].isin(SHOWN)]))
    return selection if selection.runs["lru"].nunique() > 1 else Selection(selection.runs.head(0))


def plot(data: pd.DataFrame) -> Figure:
    """Decode and hit rate over one memory axis, one curve per variant and LRU."""
    figure, panels = new_panels(n_rows=2, height_in=3.2)
    decode, hit_rate = panels[:, 0]
    for (variant, lru), runs in data.groupby([VARIANT, "lru"]):
        draw_curve(decode, runs, "decode_s_per_token", _look(variant, lru))
        draw_curve(hit_rate, runs, "decode_hit_rate", _look(variant, lru))
    latency_axis(decode, "Decode (s/token)")
    hit_rate_axis(hit_rate)
    finish_memory_axis((decode, hit_rate), data, mark_height=0.85)
    add_legend(figure)
    return figure


def _look(variant: str, lru: str) -> Look:
    """The variant's own colour; hollow and dashed for the LRU that the paper's system does not use."""
    look, classic = VARIANTS[variant], lru == "classic"
    return look._replace(label=f"{look.label}, {lru}", linestyle="--" if classic else "-", hollow=classic)


FIGURE = FigureSpec(__doc__, select, plot, SUBJECT)
