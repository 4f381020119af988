"""What a tracer costs: the decode latency of a traced run against runs of the same point without one."""

from __future__ import annotations

import pandas as pd

from analysis.drawing.style import looks
from analysis.names import TESTBED, VARIANT
from analysis.selection.comparable import setup_columns, variant_columns
from analysis.selection.setups import UNTRACED, trace_name

COST = "tracing_cost"
TRACE_SETTINGS = "config.trace."
METRIC = "decode_s_per_token"


def with_tracing_cost(traced: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """One more column: by what share of the median of its untraced counterparts among `runs` each traced run is longer.

    Not a number where there is no counterpart.
    """
    settings = (*setup_columns(runs), *variant_columns(runs), "memory_gb")
    equal = [column for column in settings if not column.startswith(TRACE_SETTINGS)]
    points = runs[equal].astype(object).where(runs[equal].notna(), None).map(str).apply(tuple, axis=1)
    untraced = runs[trace_name(runs) == UNTRACED]
    usual = untraced.groupby(points.loc[untraced.index])[METRIC].median()
    cost = traced[METRIC] / points.loc[traced.index].map(usual) - 1
    return traced.join(cost.rename(COST))


def tracing_cost(traced: pd.DataFrame) -> str:
    """A sentence on what `with_tracing_cost` found: of each testbed's variants the median."""
    known = traced.dropna(subset=[COST])
    if known.empty:
        return "What the tracer costs was not measured: there are no runs of the same points without it."
    found = "; ".join(f"{name}: {_by_variant(runs)}" for name, runs in known.groupby(TESTBED))
    return f"Decode latency with the tracer against runs without it, {found}."


def _by_variant(runs: pd.DataFrame) -> str:
    costs = runs.groupby(VARIANT)[COST].median()
    return ", ".join(
        f"{look.label} {100 * costs[name]:+.0f} %" for name, look in looks(costs.index.to_series()).items()
    )
