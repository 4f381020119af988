"""Runs that a figure of pipelines compares: alike in all but the pipeline and what the figure draws."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from analysis.drawing.style import PIPELINES
from analysis.names import KNOB, OVERFLOW, PIPELINE, STORAGE
from analysis.results.load import optional
from analysis.selection.comparable import Selection, largest, setup_columns, variant_columns

OF_A_STORAGE = "config.storage."
DRAWN = (PIPELINE, KNOB)  # how many layers are in DRAM is read from the plan


def equal_columns(runs: pd.DataFrame, but: tuple[str, ...] = ()) -> list[str]:
    """Columns of the setup, the memory limit and the variant, without those that begin with one of `but`."""
    columns = [*setup_columns(runs), *variant_columns(runs), "memory_gb"]
    return [column for column in columns if not column.startswith((*DRAWN, *but))]


def alpha(runs: pd.DataFrame) -> pd.Series:
    """Share of the layers in DRAM, 0 to 1. Source: `plan` of result.json."""
    n1, n_layers = (
        pd.to_numeric(optional(runs, f"result.plan.{name}"), errors="coerce") for name in ("n1", "n_layers")
    )
    return n1 / n_layers


def past_the_cache(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with a pipeline that took all layers by the direct path."""
    direct = (optional(runs, "result.plan.n1") == 0) & (optional(runs, OVERFLOW) == "direct")
    return runs[direct & optional(runs, PIPELINE).isin(PIPELINES)]


def curves_by_storage(
    chosen: Selection, axes: tuple[str, ...], is_a_curve: Callable[[pd.DataFrame], bool]
) -> Selection:
    """Of each storage the setting with most points (values of `axes`); of too few of them for a curve a sentence."""
    groups = [largest(group, _of_a_storage(group), axes) for _, group in chosen.runs.groupby(STORAGE)]
    curves = [group for group in groups if is_a_curve(group.runs)]
    few = [group.runs[STORAGE].iloc[0] for group in groups if not is_a_curve(group.runs)]
    return Selection(
        pd.concat([chosen.runs.head(0), *(curve.runs for curve in curves)]),
        (*chosen.left_out, *(text for group in groups for text in group.left_out)),
        tuple(f"too few runs of storage {name} for a curve" for name in few),
    )


def _of_a_storage(runs: pd.DataFrame) -> list[str]:
    return [column for column in setup_columns(runs) if column.startswith(OF_A_STORAGE)]
