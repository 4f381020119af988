"""Claims on hit rates over memory limits: C4, C9."""

from __future__ import annotations

import pandas as pd

from analysis.claims.deciding_runs import below_full, lines_over_limits, over_limits
from analysis.claims.verdict import Claim, Finding, Untestable, graded
from analysis.claims.wording import basis, in_percent, names, row_interval, share
from analysis.drawing.curves import full_hit_gb
from analysis.metrics.stats import interval, summarise
from analysis.names import OVERHEAD_GB, VARIANT
from analysis.selection.setups import Setup

METRIC = "decode_hit_rate"


def cliff(claim: Claim, setup: Setup) -> Finding:
    """C4: next to nothing hits in the thrashing zone, and much does at some limit above it."""
    runs = over_limits(setup, ["baseline"], METRIC)
    curve = summarise(runs, ["memory_gb"], METRIC)
    zone_gb = claim.thresholds["zone_gb"]
    zone, above = (curve[rows] for rows in (curve["memory_gb"] <= zone_gb, curve["memory_gb"] > zone_gb))
    if zone.empty or above.empty:
        raise Untestable(f"it takes limits up to {zone_gb:g} GB and above")
    worst, highest = zone.loc[zone["median"].idxmax()], above.loc[above["median"].idxmax()]
    enough = 100 * highest["median"] >= claim.thresholds["before_pct"]
    below_share = (zone["median"] < _ideal(runs, zone["memory_gb"]) / 2).all()
    verdict = graded(
        reproduced=enough and 100 * worst["median"] <= claim.thresholds["collapsed_pct"],
        direction=enough and below_share,
    )
    text = (
        f"at most {share(worst['median'])} up to {zone_gb:g} GB; "
        f"{share(highest['median'])} at {highest['memory_gb']:g} GB"
    )
    reason = f"{basis(runs)} The kernel's LRU is {' and '.join(sorted(runs['lru'].unique()))}, which moves the cliff."
    return Finding(verdict, 100 * worst["median"], in_percent(row_interval(worst)), text, names(runs), reason=reason)


def follows_memory(claim: Claim, setup: Setup) -> Finding:
    """C9: DUAL-BLADE's hit rate is a rising straight line, nowhere below CachePolicy-Only's and mostly above it.

    Above counts at limits that do not hold the whole KV alone: from there on, both hit always.
    """
    runs = over_limits(setup, ("dual_blade", "cachepolicy_only"), METRIC)
    own = below_full(runs[runs[VARIANT] == "dual_blade"])
    lines = lines_over_limits(own, METRIC)
    explained, slope = lines["explained"].median(), lines["slope"].median()
    lead = _lead(runs)
    above = (100 * lead >= -claim.thresholds["tie_points"]).all() and lead[lead.index < full_hit_gb(own)].median() > 0
    rises = slope > 0 and explained >= claim.thresholds["rising"]
    verdict = graded(reproduced=slope > 0 and explained >= claim.thresholds["linear"] and above, direction=rises)
    text = (
        f"R² {explained:.3f}, {100 * slope:.1f} points per GB; above CachePolicy-Only by "
        f"{100 * lead.min():.1f} to {100 * lead.max():.1f} points"
    )
    return Finding(verdict, explained, interval(lines["explained"]), text, names(runs), reason=basis(runs))


def _ideal(runs: pd.DataFrame, limits_gb: pd.Series) -> pd.Series:
    """Share of the KV that the budget could hold."""
    budget_gb = limits_gb - runs[OVERHEAD_GB].iloc[0]
    return (budget_gb / runs["working_set_gb"].iloc[0]).clip(0, 1)


def _lead(runs: pd.DataFrame) -> pd.Series:
    """DUAL-BLADE's hit rate less CachePolicy-Only's at each limit, medians, 0 to 1."""
    medians = runs.groupby(["memory_gb", VARIANT])[METRIC].median().unstack()
    return (medians["dual_blade"] - medians["cachepolicy_only"]).dropna()
