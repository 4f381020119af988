"""Paper figure 6 in the guest: prefill and decode latency of the variants, one column of panels per emulated SSD."""

from __future__ import annotations

from analysis.figures.e2e_latency import caption, plot
from analysis.results.load import Results
from analysis.selection.comparable import GUEST, Selection, comparable_by_ssd, limited, of_testbed, warm

__all__ = ["caption", "plot", "select"]


def select(results: Results) -> Selection:
    """The largest comparable set of each of the guest's SSDs."""
    return comparable_by_ssd(of_testbed(warm(limited(results.runs)), GUEST))
