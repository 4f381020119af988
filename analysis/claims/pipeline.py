"""Claims on the pipeline between storage and link: C17, C18."""

from __future__ import annotations

import pandas as pd

from analysis.claims.verdict import Claim, Finding, Untestable, graded, sentence
from analysis.claims.wording import basis, in_percent, names, percent
from analysis.metrics.paired_change import changes
from analysis.metrics.stats import interval
from analysis.names import DIRECT_CHOICE, DIRECT_ITERATIONS, KNOB, LINK, PIPELINE, REPETITION
from analysis.results.load import optional
from analysis.selection.comparison import MEMORY, Comparison, Selection, as_text
from analysis.selection.filters import untraced
from analysis.selection.setups import Setup

ALPHA = "alpha"  # share of the layers in DRAM, which the claim calls the DRAM:SSD ratio
POINT = [ALPHA, KNOB, MEMORY]
OVER_RATIOS = Comparison((PIPELINE, ALPHA), free=(KNOB, MEMORY))
METRIC = "decode_s_per_token"
LINKS = ("cuda", "paced")  # kinds of link that take time of their own


def adaptive_choice(claim: Claim, setup: Setup) -> Finding:
    """C17: decode with the adaptive choice against Overlap-Intra, all else equal, at each ratio of one setting."""
    runs, left_out, _ = _adaptive_and_intra(_with_a_link(setup))
    pairs = changes(runs, PIPELINE, "adaptive", "intra", METRIC, POINT)
    if pairs.empty:
        raise Untestable("it takes runs that differ in the pipeline alone, adaptive and intra")
    medians = pairs.groupby(ALPHA)["change"].median()
    change, ends = medians.median(), interval(medians if len(medians) > 1 else pairs["change"])
    lower = change < 0 and (ends is None or ends[1] < 0)
    verdict = graded(reproduced=lower and 100 * change <= -claim.thresholds["lower_pct"], direction=lower)
    where = f"{len(medians)} DRAM:SSD ratios" if len(medians) > 1 else "one DRAM:SSD ratio"
    text = f"{percent(change)} in the median over {where}"
    reason = " ".join([basis(runs), *(sentence(f"without {text}") for text in left_out)])
    return Finding(verdict, 100 * change, in_percent(ends), text, names(runs), reason=reason)


def converges_to_cross(claim: Claim, setup: Setup) -> Finding:
    """C18: the choice of the direct group in runs with the adaptive pipeline."""
    runs = _with_a_link(setup)
    choices = optional(runs, DIRECT_CHOICE).dropna()
    if choices.empty:
        raise Untestable("it takes runs with the adaptive pipeline and four decode iterations or more")
    crossed = (choices == "cross").mean()
    verdict = graded(reproduced=100 * crossed >= claim.thresholds["most_pct"], direction=crossed > 0.5)
    text = f"Cross in {(choices == 'cross').sum()} of {len(choices)} runs"
    decided = runs.loc[choices.index]
    return Finding(verdict, 100 * crossed, None, text, names(decided), reason=basis(decided))


def probing_iterations(runs: pd.DataFrame) -> pd.Series:
    """Warm decode iterations that the direct group ran with the pipeline it then did not choose, one value per run."""
    groups = pd.DataFrame(
        {"choice": optional(runs, DIRECT_CHOICE), "iterations": optional(runs, DIRECT_ITERATIONS)}
    ).dropna()
    counts = [_other(group.iterations, group.choice) for group in groups.itertuples()]
    return pd.Series(counts, index=groups.index, dtype=float)


def _adaptive_and_intra(runs: pd.DataFrame) -> Selection:
    """Pairs of runs with the two pipelines, all else equal; of all settings, that with most ratios."""
    settings = {PIPELINE: optional(runs, PIPELINE), KNOB: optional(runs, KNOB).map(str)}
    runs = runs.assign(**settings)
    runs = runs[runs[PIPELINE].isin(["adaptive", "intra"]) & runs[[ALPHA, METRIC]].notna().all(axis="columns")]
    alike = as_text(runs[[*OVER_RATIOS.settings(runs), *POINT, REPETITION]])
    runs = runs[runs[PIPELINE].groupby([alike[name] for name in alike]).transform("nunique") == 2]
    return OVER_RATIOS.select(runs)


def _other(iterations: list[dict[str, object]], choice: str) -> int:
    return sum(iteration["strategy"] != choice for iteration in iterations[1:])


def _with_a_link(setup: Setup) -> pd.DataFrame:
    """Untraced runs with a link to overlap with.

    Raises:
        Untestable: there are none.
    """
    runs = untraced(setup.runs[optional(setup.runs, LINK).isin(LINKS)])
    if runs.empty:
        raise Untestable(
            "with plain copies in host memory, or none in shared memory, there is no link to overlap; it takes a GPU "
            "or device=paced"
        )
    return runs
