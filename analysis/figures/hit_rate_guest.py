"""Paper figure 7 in the guest: hit rate of the variants, one panel per emulated SSD."""

from __future__ import annotations

from dataclasses import replace

from analysis.figures import hit_rate
from analysis.results.load import Results
from analysis.selection.comparison import Selection, comparable_by_ssd
from analysis.selection.filters import GUEST, limited, of_testbed, warm


def select(results: Results) -> Selection:
    """The largest comparable set of each of the guest's SSDs."""
    return comparable_by_ssd(of_testbed(warm(limited(results.runs)), GUEST))


FIGURE = replace(hit_rate.FIGURE, title=__doc__, select=select)
