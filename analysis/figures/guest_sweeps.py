"""Paper figures 6 and 7 in the guest: latency and hit rate of the variants, one panel or column per emulated SSD."""

from __future__ import annotations

from dataclasses import replace

from analysis.figures import e2e_latency, hit_rate
from analysis.results.load import Results
from analysis.selection.comparison import Selection, comparable_by_ssd
from analysis.selection.filters import GUEST, limited, of_testbed, warm


def select(results: Results) -> Selection:
    """The largest comparable set of each of the guest's SSDs."""
    return comparable_by_ssd(of_testbed(warm(limited(results.runs)), GUEST))


E2E_LATENCY = replace(
    e2e_latency.FIGURE,
    title="Paper figure 6 in the guest: prefill and decode latency of the variants, one column of panels per emulated "
    "SSD.",
    select=select,
)
HIT_RATE = replace(
    hit_rate.FIGURE,
    title="Paper figure 7 in the guest: hit rate of the variants, one panel per emulated SSD.",
    select=select,
)
