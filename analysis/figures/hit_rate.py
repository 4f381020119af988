"""Paper figure 7: hit rate of decode reads of the variants over memory limits, with the Baseline's cliff."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.caption import note, provenance
from analysis.curves import draw_curves, finish_memory_axis, hit_rate_axis
from analysis.layout import add_legend, add_note, new_panels
from analysis.load import Results
from analysis.selection import Selection, comparable, curve, limited

SUBJECT = "Hit rate of decode reads of the variants over memory limits. Dashed line: from there on the whole KV fits."


def select(results: Results) -> Selection:
    """The largest comparable set."""
    return curve(comparable(limited(results.runs)))


def caption(data: pd.DataFrame) -> str:
    """The subject and where the runs come from."""
    return provenance(SUBJECT, data)


def plot(data: pd.DataFrame) -> Figure:
    """One panel, one curve per variant."""
    figure, panels = new_panels(n_rows=1, height_in=2.4)
    axes = panels[0, 0]
    draw_curves(axes, data, "decode_hit_rate")
    hit_rate_axis(axes)
    finish_memory_axis([axes], data, mark_height=0.5)
    add_legend(figure)
    add_note(figure, note(data))
    return figure
