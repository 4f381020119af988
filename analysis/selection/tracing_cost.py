"""The cost of tracing: decode latency of a traced run against untraced runs of the same point."""

from __future__ import annotations

import pandas as pd

from analysis.drawing.style import looks
from analysis.names import TESTBED, VARIANT
from analysis.selection.comparison import Comparison, as_text
from analysis.selection.filters import untraced

COST = "tracing_cost"
BUT_THE_TRACER = Comparison(axes=(), free=("config.trace.",))
METRIC = "decode_s_per_token"


def with_tracing_cost(traced: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Add the column `tracing_cost`: how much longer a traced run is than the median of equal untraced `runs`, a ratio.

    It is not a number where no equal run is untraced.
    """
    points = as_text(runs[BUT_THE_TRACER.settings(runs)]).apply(tuple, axis=1)
    usual = untraced(runs).groupby(points)[METRIC].median()
    cost = traced[METRIC] / points.loc[traced.index].map(usual) - 1
    return traced.join(cost.rename(COST))


def tracing_cost(traced: pd.DataFrame) -> str:
    """A sentence on the cost of tracing: the median of each testbed's variants."""
    known = traced.dropna(subset=[COST])
    if known.empty:
        return "The cost of tracing was not measured: there are no untraced runs of the same points."
    found = "; ".join(f"{name}: {_by_variant(runs)}" for name, runs in known.groupby(TESTBED))
    return f"Decode latency with the tracer against runs without it, {found}."


def _by_variant(runs: pd.DataFrame) -> str:
    costs = runs.groupby(VARIANT)[COST].median()
    return ", ".join(
        f"{look.label} {100 * costs[name]:+.0f} %" for name, look in looks(costs.index.to_series()).items()
    )
