"""Which runs may share a figure: those with equal settings, but for the columns that the figure draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from analysis.names import (
    CGROUP,
    FILE_SYSTEM,
    IO_PATH,
    KNOB,
    LINK_RATE,
    MACHINE,
    OVERHEAD_GB,
    PIPELINE,
    SCALE,
    SSD,
    STARTED_AT,
    STORAGE,
    VARIANT,
)
from analysis.results.load import optional
from analysis.selection.filters import split_by_ssd
from analysis.selection.left_out import describe_group, number_of_runs

MEMORY = "memory_gb"
LRU = ("lru", "config.testbed.lru")  # the LRU in force, and the one that was asked for
# Ignored when grouping: unique per run, or implied by the recorded kernel version.
PER_RUN = ("config.storage.directory", "config.testbed.kernel")
RUN_SECTIONS = ("variant", "model", "workload", "storage", "device", "testbed", "emulated_ssd", "trace")
RUN_COLUMNS = (SCALE, MEMORY, "decode_iterations", OVERHEAD_GB, CGROUP, "lru", "kernel_series", *MACHINE, *SSD)
IO_SECTIONS = ("testbed", "emulated_ssd")
IO_COLUMNS = (
    *("config.io.op", "config.io.size_mib", "config.io.runtime_s", "config.storage.iopoll"),
    *(FILE_SYSTEM, "kernel_series", *MACHINE, *SSD),
)
MAX_RATE_DIFFERENCE = 0.05  # of the link's rate within a point

Preference = Callable[[pd.DataFrame], bool]


class Selection(NamedTuple):
    """Comparable runs (none: nothing to draw), and sentences on groups left out and on missing points."""

    runs: pd.DataFrame
    left_out: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Which columns of runs a figure draws (`axes`), and which others may differ (`free`: beginnings of names).

    Each value of the axis `each` may have settings of its own, whose names begin with `own`. Columns in `sections` of
    the configuration, and `columns`, are settings.
    """

    axes: tuple[str, ...]
    free: tuple[str, ...] = ()
    each: str | None = None
    own: str = ""
    sections: tuple[str, ...] = RUN_SECTIONS
    columns: tuple[str, ...] = RUN_COLUMNS

    def settings(self, runs: pd.DataFrame) -> list[str]:
        """Columns in which all runs of the figure must be equal."""
        return [column for column in self._all_settings(runs) if not (self.own and column.startswith(self.own))]

    def select(self, runs: pd.DataFrame, preferred: Preference = lambda group: False) -> Selection:
        """Take the settings with most points, and for each value of the axis `each` its own settings with most points.

        Among settings with as many points: `preferred` ones, then those with most runs, then the newest.
        """
        if runs.empty:
            return Selection(runs)
        axes = [axis for axis in self.axes if axis in runs]
        chosen = _largest(runs, self.settings(runs), axes, preferred)
        if self.each is None:
            return chosen
        own = [column for column in self._all_settings(runs) if column.startswith(self.own)]
        parts = [_largest(group, own, axes) for _, group in chosen.runs.groupby(self.each)]
        left_out = chosen.left_out + tuple(text for part in parts for text in part.left_out)
        return Selection(pd.concat([part.runs for part in parts]), left_out)

    def _all_settings(self, runs: pd.DataFrame) -> list[str]:
        sections = tuple(f"config.{section}." for section in self.sections)
        drawn = {*self.axes, *PER_RUN}
        return [
            column
            for column in runs.columns
            if (column in self.columns or column.startswith(sections))
            and column not in drawn
            and not column.startswith(self.free)
        ]


def by_variant(*axes: str, free: tuple[str, ...] = ()) -> Comparison:
    """Return the comparison of variants over other axes; each variant may have settings of its own."""
    return Comparison((VARIANT, *axes), free, VARIANT, "config.variant.")


def by_storage(*axes: str, free: tuple[str, ...] = ()) -> Comparison:
    """Return the comparison of pipelines over other axes; each storage may have settings of its own."""
    return Comparison((PIPELINE, STORAGE, *axes), (KNOB, *free), STORAGE, "config.storage.")


OVER_LIMITS = by_variant(MEMORY)
OVER_LIMITS_AND_LRUS = by_variant(MEMORY, *LRU)
OVER_IO_PATHS = Comparison((IO_PATH,), sections=IO_SECTIONS, columns=IO_COLUMNS)


def curve(selection: Selection) -> Selection:
    """Return the selection as curves over the memory limit; none with fewer than two limits."""
    if selection.runs[MEMORY].nunique() < 2:
        return selection._replace(runs=selection.runs.head(0))
    return selection._replace(missing=tuple(missing_points(selection.runs)))


def curves_by_storage(selection: Selection, is_a_curve: Callable[[pd.DataFrame], bool]) -> Selection:
    """Return the runs of each storage that has a curve, and a sentence for each storage with too few runs."""
    if selection.runs.empty:
        return selection
    groups = dict(iter(selection.runs.groupby(STORAGE)))
    curves = [runs for runs in groups.values() if is_a_curve(runs)]
    few = tuple(f"too few runs of storage {name} for a curve" for name, runs in groups.items() if not is_a_curve(runs))
    return selection._replace(runs=pd.concat([selection.runs.head(0), *curves]), missing=few)


def comparable_by_ssd(runs: pd.DataFrame) -> Selection:
    """The largest comparable set of each SSD, as curves over the memory limit."""
    selections = [OVER_LIMITS.select(group) for _, group in split_by_ssd(runs)]
    chosen = pd.concat([runs.head(0), *(selection.runs for selection in selections)])
    return curve(Selection(chosen, tuple(text for selection in selections for text in selection.left_out)))


def missing_points(runs: pd.DataFrame) -> list[str]:
    """A sentence for each variant that lacks limits which other variants have."""
    limits = runs.groupby(VARIANT)[MEMORY].agg(set)
    lacking = limits.map(lambda have: sorted(set(runs[MEMORY]) - have))
    return [f"{name} has no run at {', '.join(f'{gb:g}' for gb in gbs)} GB" for name, gbs in lacking.items() if gbs]


def as_text(values: pd.DataFrame) -> pd.DataFrame:
    """Values of any type as text to compare runs by; a missing value is a value, too."""
    return values.astype(object).where(values.notna(), None).map(str)


def at_one_link_rate(runs: pd.DataFrame, axes: Iterable[str]) -> Selection:
    """Leave out runs whose link was 5 % faster or slower than the median of their point (equal values of `axes`).

    device=paced_ratio measures the storage again when a sweep goes on, and paces the link anew. Of an even number the
    lower middle one is the median, so that it is a rate which a run had.
    """
    rates = pd.to_numeric(optional(runs, LINK_RATE))
    if rates.isna().all():
        return Selection(runs)
    points = rates.groupby([runs[axis] for axis in axes], dropna=False)
    usual = points.transform(lambda rate: rate.quantile(0.5, interpolation="lower"))
    off = runs[(rates / usual - 1).abs() > MAX_RATE_DIFFERENCE]
    if off.empty:
        return Selection(runs)
    shown = ", ".join(f"{rate:.3g}" for rate in sorted(set(rates[off.index])))
    sentence = (
        f"{number_of_runs(off)} with a link of {shown} GB/s, more than {MAX_RATE_DIFFERENCE:.0%} off the median of the "
        "same point"
    )
    return Selection(runs.drop(index=off.index), (sentence,))


def _largest(
    runs: pd.DataFrame, columns: list[str], axes: list[str], preferred: Preference = lambda group: False
) -> Selection:
    """Group by equal values of `columns` and take the group with most points, at one link rate."""
    groups = [(values, runs.loc[members]) for values, members in sorted(_by_values(runs, columns).items())]
    groups.sort(key=lambda group: _rank(group[1], axes, preferred(group[1])), reverse=True)
    (reference, first), *rest = groups
    others = (describe_group(group, axes[0], columns, values, reference) for values, group in rest)
    chosen = at_one_link_rate(first, axes)
    return Selection(chosen.runs, (*chosen.left_out, *others))


def _by_values(runs: pd.DataFrame, columns: list[str]) -> dict[tuple[str, ...], list[str]]:
    """Names of runs by the values that they share, as text; a missing value is a value, too."""
    texts = [
        [str(value) if known else "None" for value, known in zip(runs[name].tolist(), runs[name].notna(), strict=True)]
        for name in columns
    ]
    groups: dict[tuple[str, ...], list[str]] = {}
    for run, *values in zip(runs.index, *texts, strict=True):
        groups.setdefault(tuple(values), []).append(run)
    return groups


def _rank(group: pd.DataFrame, axes: list[str], preferred: bool) -> tuple[int, bool, int, str]:
    points = group.groupby(axes, dropna=False).ngroups
    return points, preferred, len(group), str(group.get(STARTED_AT, pd.Series("")).max())
