"""The cost of tracing: decode latency of a traced run against untraced runs of the same point."""

from __future__ import annotations

import pandas as pd

from analysis.selection.comparison import Comparison, as_text
from analysis.selection.filters import untraced

BUT_THE_TRACER = Comparison(axes=(), free=("config.trace.",))
METRIC = "decode_s_per_token"


def with_tracing_cost(traced: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Add the column `tracing_cost`: how much longer a traced run is than the median of equal untraced `runs`, a ratio.

    It is not a number where no equal run is untraced.
    """
    points = as_text(runs[BUT_THE_TRACER.settings(runs)]).apply(tuple, axis=1)
    usual = untraced(runs).groupby(points)[METRIC].median()
    cost = traced[METRIC] / points.loc[traced.index].map(usual) - 1
    return traced.join(cost.rename("tracing_cost"))
