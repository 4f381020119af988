"""Claims on what the design costs: C22."""

from __future__ import annotations

import pandas as pd

from analysis.claims.pipeline import probing_iterations
from analysis.claims.verdict import Claim, Finding, Untestable, graded
from analysis.claims.wording import basis, names
from analysis.metrics.stats import interval
from analysis.names import VARIANT
from analysis.results.load import optional
from analysis.selection.setups import Setup


def pinned_memory(claim: Claim, setup: Setup) -> Finding:
    """C22: page-locked bytes against copy threads x one tensor, and iterations given to probing."""
    runs = setup.comparable()
    runs = runs[(runs[VARIANT] == "dual_blade") & optional(runs, "result.pinned.locked").eq(True)]
    columns = ("result.pinned.bytes", "config.device.copy_threads", "result.plan.kpu_bytes")
    pinned_bytes, threads, pair_bytes = (pd.to_numeric(optional(runs, name), errors="coerce") for name in columns)
    ratio = (pinned_bytes / (threads * pair_bytes / 2)).dropna()
    if ratio.empty:
        raise Untestable("it takes runs of dual_blade whose buffers the kernel locked (see ulimit -l)")
    measured, probing = ratio.median(), probing_iterations(runs)
    probed_once = len(probing) > 0 and (probing == 1).all()
    verdict = graded(
        reproduced=measured <= claim.thresholds["memory"] and probed_once,
        direction=measured <= claim.thresholds["loose"],
    )
    text = f"{measured:.2f} x N_threads x M_pin ({pinned_bytes.median() / 1e6:.0f} MB)"
    if len(probing):
        text += f"; probing iterations: {probing.max():.0f}"
        reason = basis(runs)
    else:
        reason = f"{basis(runs)} No run chose a pipeline, so the half of the claim on probing is not judged."
    return Finding(verdict, measured, interval(ratio), text, names(runs.loc[ratio.index]), reason=reason)
