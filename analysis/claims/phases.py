"""Claims on where the time goes: C10."""

from __future__ import annotations

import pandas as pd

from analysis.claims.verdict import Claim, Finding, Untestable, graded
from analysis.claims.wording import basis, in_percent, names, share
from analysis.metrics.stats import interval
from analysis.names import VARIANT
from analysis.results.load import optional
from analysis.selection.comparison import OVER_LIMITS
from analysis.selection.filters import limited, untraced
from analysis.selection.setups import Setup


def share_of_disk(claim: Claim, setup: Setup) -> Finding:
    """C10: the Baseline's storage stalls as a share of decode, at the paper's M-Low and M-High."""
    low_gb, high_gb = claim.thresholds["low_gb"], claim.thresholds["high_gb"]
    known = _stalled(setup.runs, "prefill").notna() & _stalled(setup.runs, "decode").notna()
    runs = OVER_LIMITS.select(limited(untraced(setup.runs[known]))).runs
    runs = runs[runs[VARIANT] == "baseline"]
    stalls = {phase: _stalled(runs, phase) for phase in ("prefill", "decode")}
    low, high = (runs[runs["memory_gb"] == limit_gb].index for limit_gb in (low_gb, high_gb))
    if low.empty or high.empty:
        raise Untestable(
            f"it takes Baseline runs at {low_gb:g} GB (M-Low) and {high_gb:g} GB (M-High) that recorded where time went"
        )
    measured = stalls["decode"][low].median()
    ample, prefill = stalls["decode"][high].median(), stalls["prefill"][low].median()
    more = measured > ample and measured > prefill
    near = abs(100 * measured - claim.published.values[-1]) <= claim.thresholds["points"]
    verdict = graded(reproduced=more and near, direction=more)
    text = f"decode {share(measured)} at {low_gb:g} GB, {share(ample)} at {high_gb:g} GB; prefill {share(prefill)}"
    ends = in_percent(interval(stalls["decode"][low]))
    return Finding(verdict, 100 * measured, ends, text, names(runs.loc[[*low, *high]]), reason=basis(runs))


def _stalled(runs: pd.DataFrame, phase: str) -> pd.Series:
    """Share of a phase in which the computing thread waited for storage, 0 to 1. Source: `phases` of result.json."""
    parts = (optional(runs, f"result.phases.{phase}.{name}") for name in ("storage_stall_s", "wall_s"))
    stall_s, wall_s = (pd.to_numeric(part) for part in parts)
    return stall_s / wall_s
