"""Paper figure 6: prefill and decode latency of the variants over memory limits, one column of panels per SSD."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.drawing.curves import draw_curves, finish_memory_axis, latency_axis
from analysis.drawing.layout import add_legend, new_panels
from analysis.figures.spec import FigureSpec
from analysis.results.load import Results
from analysis.selection.comparison import Selection, comparable_by_ssd
from analysis.selection.filters import limited, one_testbed, split_by_ssd, warm

SUBJECT = (
    "Prefill latency and decode latency per token of the variants over memory limits. "
    "Dashed line: the limit from which the whole KV fits."
)


def select(results: Results) -> Selection:
    """The largest comparable set of each SSD of one testbed."""
    return comparable_by_ssd(one_testbed(warm(limited(results.runs))))


def plot(data: pd.DataFrame) -> Figure:
    """Two rows (prefill, decode) by one column per SSD."""
    ssds = split_by_ssd(data)
    figure, panels = new_panels(n_rows=2, n_columns=len(ssds), height_in=3.2)
    for (prefill, decode), (name, runs) in zip(panels.T, ssds, strict=True):
        draw_curves(prefill, runs, "prefill_s")
        draw_curves(decode, runs, "decode_s_per_token")
        latency_axis(prefill, "Prefill (s)")
        latency_axis(decode, "Decode (s/token)")
        finish_memory_axis((prefill, decode), runs, mark_height=0.12)
        if len(ssds) > 1:
            prefill.set_title(name)
    add_legend(figure, n_columns=2 * len(ssds))
    return figure


FIGURE = FigureSpec(__doc__, select, plot, SUBJECT)
