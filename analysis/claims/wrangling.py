"""The claim on data-wrangling tasks: C19."""

from __future__ import annotations

from analysis.claims.verdict import Claim, Finding, Untestable, Verdict
from analysis.claims.wording import basis, names, row_interval
from analysis.names import VARIANT, WORKLOAD
from analysis.selection.filters import untraced
from analysis.selection.setups import Setup
from analysis.selection.tasks import TASKS, relative, replayed

MIN_TASKS = 4  # as many as the paper shows


def tasks(claim: Claim, setup: Setup) -> Finding:
    """C19: most tasks are shorter at the paper's limit, DI:Buy by the published factor; the one that fits is equal."""
    limit_gb = claim.thresholds["limit_gb"]
    runs = untraced(setup.runs[setup.runs["memory_gb"] == limit_gb])
    runs = replayed(runs[runs[VARIANT].isin(("baseline", "dual_blade"))]).runs
    by_task = relative(runs, "dual_blade", "task_s").set_index(WORKLOAD) if len(runs) else runs
    if len(by_task) < MIN_TASKS or not {"di_buy", "ed_hospital"} <= set(by_task.index):
        raise Untestable(
            f"it takes {MIN_TASKS} tasks or more with Baseline and DUAL-BLADE at {limit_gb:g} GB, DI Buy and ED "
            f"Hospital among them, and there are {len(by_task)}"
        )
    ratios = by_task["median"]
    buy, equal = by_task.loc["di_buy"], abs(ratios["ed_hospital"] - 1) <= claim.thresholds["equal_pct"] / 100
    shorter = (ratios < 1).sum()
    if shorter <= len(ratios) / 2:
        verdict = Verdict.CONTRADICTED
    else:
        reproduced = equal and buy["median"] <= claim.thresholds["buy"]
        verdict = Verdict.REPRODUCED if reproduced else Verdict.DIRECTION
    text = (
        f"{TASKS['di_buy']} {buy['median']:.2f}x, {TASKS['ed_hospital']} {ratios['ed_hospital']:.2f}x; {shorter} of "
        f"{len(ratios)} tasks shorter, {ratios.min():.2f}x to {ratios.max():.2f}x"
    )
    return Finding(verdict, buy["median"], row_interval(buy), text, names(runs), reason=basis(runs))
