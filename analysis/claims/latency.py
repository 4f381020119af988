"""Claims on latency over memory limits: C1, C2, C5, C6, C7, C8."""

from __future__ import annotations

import pandas as pd

from analysis.claims.deciding_runs import below_full, lines_over_limits, over_limits
from analysis.claims.verdict import Claim, Finding, Untestable, graded
from analysis.claims.wording import basis, in_percent, names, percent, row_interval
from analysis.drawing.curves import full_hit_gb
from analysis.drawing.style import VARIANTS
from analysis.metrics.paired_change import change_by_limit
from analysis.metrics.stats import interval, summarise
from analysis.names import REPETITION, VARIANT
from analysis.selection.setups import Setup

PREFILL, DECODE = "prefill_s", "decode_s_per_token"
PHASES = {"prefill": PREFILL, "decode": DECODE}


def prefill_latency(claim: Claim, setup: Setup) -> Finding:
    """C1: prefill is shorter over the limits as a whole, and at the best by the published reduction.

    The best of many limits alone would be noise's choice.
    """
    runs = over_limits(setup, ("baseline", "dual_blade"), PREFILL)
    by_limit = change_by_limit(runs, "dual_blade", "baseline", PREFILL)
    best = by_limit.loc[by_limit["median"].idxmin()]
    overall, ends = by_limit["median"].median(), interval(by_limit["median"])
    shorter = ends is not None and ends[1] < 0
    large = best["median"] <= -claim.thresholds["largest_pct"] / 100
    verdict = graded(reproduced=shorter and large, direction=shorter)
    text = f"{percent(best['median'])} at {best['memory_gb']:g} GB; {percent(overall)} in the median over the limits"
    return Finding(verdict, 100 * best["median"], in_percent(row_interval(best)), text, names(runs), reason=basis(runs))


def decode_latency(claim: Claim, setup: Setup) -> Finding:
    """C2: shorter at every limit, and at the best by as much as the published range reaches."""
    runs = over_limits(setup, ("baseline", "dual_blade"), DECODE)
    by_limit = change_by_limit(runs, "dual_blade", "baseline", DECODE)
    best, worst = (by_limit.loc[row] for row in (by_limit["median"].idxmin(), by_limit["median"].idxmax()))
    least, largest = -claim.thresholds["least_pct"] / 100, -claim.thresholds["largest_pct"] / 100
    short = by_limit[by_limit["memory_gb"] < full_hit_gb(runs)]
    verdict = graded(
        reproduced=worst["median"] <= least and best["median"] <= largest,
        direction=len(short) > 0 and bool((short["median"] < 0).all()),
    )
    text = " to ".join(f"{percent(row['median'])} at {row['memory_gb']:g} GB" for row in (best, worst))
    return Finding(verdict, 100 * best["median"], in_percent(row_interval(best)), text, names(runs), reason=basis(runs))


def write_stalls(claim: Claim, setup: Setup) -> Finding:
    """C5: the Baseline's prefill at its lowest limit against those from which the paper sees no stall."""
    from_gb = claim.thresholds["from_gb"]
    runs = over_limits(setup, ["baseline"], PREFILL)
    ample, tight = (runs[rows] for rows in (runs["memory_gb"] >= from_gb, runs["memory_gb"] <= from_gb))
    lowest_gb = runs["memory_gb"].min()
    if ample.empty or tight["memory_gb"].nunique() < 2:
        raise Untestable(f"it takes two limits up to {from_gb:g} GB and one from there on")
    lowest = runs[runs["memory_gb"] == lowest_gb].groupby(REPETITION)[PREFILL].median()
    rise = (lowest / ample.groupby(REPETITION)[PREFILL].median() - 1).dropna()
    curve = summarise(tight, ["memory_gb"], PREFILL)
    correlation = curve["memory_gb"].rank().corr(curve["median"].rank())
    ends = interval(rise)
    longer = rise.median() > 0 and (ends is None or ends[0] > 0)
    steady = correlation <= claim.thresholds["correlation"]
    verdict = graded(
        reproduced=longer and steady and rise.median() >= claim.thresholds["rise_pct"] / 100, direction=longer
    )
    text = f"{percent(rise.median())} at {lowest_gb:g} GB; rank correlation {correlation:.2f} up to {from_gb:g} GB"
    reason = f"{basis(runs)} {_writeback(runs)}".strip()
    return Finding(verdict, 100 * rise.median(), in_percent(ends), text, names(runs), reason=reason)


def eager_eviction_is_linear(claim: Claim, setup: Setup) -> Finding:
    """C6: CachePolicy-Only's decode latency is a falling straight line over the limits that do not hold the KV."""
    runs = below_full(over_limits(setup, ["cachepolicy_only"], DECODE))
    lines = lines_over_limits(runs, DECODE)
    explained, slope = lines["explained"].median(), lines["slope"].median()
    falls = slope < 0 and explained >= claim.thresholds["falling"]
    verdict = graded(reproduced=slope < 0 and explained >= claim.thresholds["linear"], direction=falls)
    text = f"R² {explained:.3f}, {1000 * slope:+.0f} ms per token and GB"
    return Finding(verdict, explained, interval(lines["explained"]), text, names(runs), reason=basis(runs))


def direct_is_flat(claim: Claim, setup: Setup) -> Finding:
    """C7: the direct path alone has no trend over the limits, and takes the most time of all when memory is ample."""
    runs, ample = over_limits(setup, ["nvme_direct_only"], DECODE), _when_ample(setup)
    slopes = lines_over_limits(runs, DECODE)["slope"]
    trends = slopes * (runs["memory_gb"].max() - runs["memory_gb"].min()) / runs[DECODE].median()
    trend, last = trends.median(), ample.groupby(VARIANT)[DECODE].median().idxmax() == "nvme_direct_only"
    flat = abs(trend) <= claim.thresholds["flat_pct"] / 100
    loose = (flat or last) and abs(trend) <= claim.thresholds["loose_pct"] / 100
    verdict = graded(reproduced=flat and last, direction=loose)
    limits_gb, ample_gb = runs["memory_gb"], ample["memory_gb"].iloc[0]
    text = (
        f"{percent(trend)} from {limits_gb.min():g} to {limits_gb.max():g} GB; "
        f"{'last' if last else 'not last'} at {ample_gb:g} GB"
    )
    decided = setup.runs.loc[runs.index.union(ample.index)]
    return Finding(verdict, 100 * trend, in_percent(interval(trends)), text, names(decided), reason=basis(decided))


def fastest_everywhere(claim: Claim, setup: Setup) -> Finding:
    """C8: nowhere is another variant faster than DUAL-BLADE by more than a tie, in the median over repetitions."""
    runs = over_limits(setup, VARIANTS, *PHASES.values())
    tie = claim.thresholds["tie_pct"] / 100
    longest = {phase: _longest(runs, metric) for phase, metric in PHASES.items()}
    wins = {phase: longer <= tie for phase, longer in longest.items()}
    won = pd.concat(wins.values()).mean()
    most = wins["decode"].mean() >= claim.thresholds["most_pct"] / 100
    verdict = graded(reproduced=won == 1, direction=most)
    text = "; ".join(
        f"{phase} at {(longer < 0).sum()} of {len(longer)} limits, tied at {(longer.between(0, tie)).sum()}"
        for phase, longer in longest.items()
    )
    return Finding(verdict, 100 * won, None, text, names(runs), reason=basis(runs))


def _longest(runs: pd.DataFrame, metric: str) -> pd.Series:
    """By what share DUAL-BLADE takes longer than the variant that it does worst against, for each limit."""
    others = [name for name in VARIANTS if name != "dual_blade"]
    longer = pd.concat([change_by_limit(runs, "dual_blade", other, metric) for other in others])
    return longer.groupby("memory_gb")["median"].max()


def _when_ample(setup: Setup) -> pd.DataFrame:
    """Runs of all variants at the highest limit that they share."""
    runs = over_limits(setup, VARIANTS, DECODE)
    return runs[runs["memory_gb"] == runs["memory_gb"].max()]


def _writeback(runs: pd.DataFrame) -> str:
    """Who held dirty pages back: the run's cgroup, or the machine, set to the run's budget or left as it is."""
    holders = runs.get("environment.cgroup.dirty_pages.by", pd.Series(dtype=object)).dropna().unique()
    return f"Dirty pages are held back by {' or by '.join(sorted(holders))}." if len(holders) else ""
