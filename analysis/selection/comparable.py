"""Which runs may share a figure: those that differ in variant, memory limit, repetition and code revision alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import pandas as pd

from analysis.names import (
    CGROUP,
    EMULATED,
    FILE_SYSTEM,
    IO_OP,
    LINK_RATE,
    MACHINE,
    OVERHEAD_GB,
    SCALE,
    SSD,
    STARTED_AT,
    STORAGE,
    TESTBED,
    VARIANT,
)
from analysis.results.load import optional

SETUP_SECTIONS = ("model", "workload", "storage", "device", "testbed", "emulated_ssd", "trace")
SETUP_COLUMNS = (
    SCALE,
    "decode_iterations",
    OVERHEAD_GB,
    CGROUP,
    "lru",
    "kernel_series",
    *MACHINE,
    *SSD,
)
IO_SETUP_COLUMNS = (
    IO_OP,
    "config.io.size_mib",
    "config.io.runtime_s",
    "config.storage.iopoll",
    FILE_SYSTEM,
    "kernel_series",
    *MACHINE,
    *SSD,
)
IO_SETUP_PREFIXES = ("config.testbed.", "config.emulated_ssd.")
AXES = (VARIANT, "memory_gb")  # what runs of one setup differ in, the repetition apart
LRU_COLUMNS = ("lru", "config.testbed.lru")  # the one in force, and the one asked for
OWN, GUEST = "local", "guest"  # testbeds
# Of each run its own, or, as the package of a guest's kernel, said by what was read back.
PER_RUN_COLUMNS = ("config.storage.directory", "config.testbed.kernel")
SAME_RATE = 0.05  # by which the link's rate may differ within a point


class Selection(NamedTuple):
    """Runs that are comparable (none: nothing to draw), and sentences on groups left out and on missing points."""

    runs: pd.DataFrame
    left_out: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def curve(selection: Selection) -> Selection:
    """The selection as curves over the memory limit, which take two limits at least."""
    if selection.runs["memory_gb"].nunique() < 2:
        return selection._replace(runs=selection.runs.head(0))
    return selection._replace(missing=tuple(missing_points(selection.runs)))


def limited(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs under a memory limit."""
    return runs[runs["memory_gb"].notna()]


def warm(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with a decode iteration after the first, cold one, which counts in no decode value."""
    return runs[runs["decode_iterations"] > 1]


def of_testbed(runs: pd.DataFrame, name: str) -> pd.DataFrame:
    """The runs of one testbed."""
    return runs[runs[TESTBED] == name]


def one_testbed(runs: pd.DataFrame) -> pd.DataFrame:
    """The machine's own runs where they make a curve, else the guest's: no figure mixes the two."""
    own = of_testbed(runs, OWN)
    return own if own["memory_gb"].nunique() > 1 else runs[runs[TESTBED] != OWN]


def comparable_by_ssd(runs: pd.DataFrame) -> Selection:
    """The largest comparable set of each SSD, as curves over the memory limit."""
    selections = [comparable(group) for _, group in split_by_ssd(runs)]
    chosen = pd.concat([runs.head(0), *(selection.runs for selection in selections)])
    return curve(Selection(chosen, tuple(text for selection in selections for text in selection.left_out)))


def comparable(runs: pd.DataFrame, keep_apart: tuple[str, ...] = ()) -> Selection:
    """The setup with most points (variants x limits, then runs, then the newest), with one setting of each variant.

    Columns in `keep_apart` may differ within the selection: the figure draws one curve for each of their values, and
    each value counts as a point.
    """
    if runs.empty:
        return Selection(runs, ())
    setup = [column for column in setup_columns(runs) if column not in keep_apart]
    chosen = largest(runs, setup, (*AXES, *(column for column in keep_apart if column in runs)))
    by_variant = [largest(group, variant_columns(runs)) for _, group in chosen.runs.groupby(VARIANT)]
    left_out = chosen.left_out + tuple(text for variant in by_variant for text in variant.left_out)
    return Selection(pd.concat([variant.runs for variant in by_variant]), left_out)


def split_by_ssd(runs: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The runs of each testbed and SSD, named for a panel's title: figures never mix them."""
    groups = runs.reindex(columns=SSD).groupby(list(SSD), dropna=False).groups
    return [(_title(key, runs.loc[index]), runs.loc[index]) for key, index in groups.items()]


def _title(key: tuple[object, ...], runs: pd.DataFrame) -> str:
    """The testbed and its SSD: by model, or by the name that the configuration gives an emulated one."""
    if runs.get(EMULATED, pd.Series(dtype=object)).eq(True).any():
        return f"{key[0]}, {runs[STORAGE].iloc[0]} (emulated)"
    return ", ".join(part for part in key[:2] if isinstance(part, str))


def missing_points(runs: pd.DataFrame) -> list[str]:
    """A sentence for each variant that lacks limits which others have."""
    limits = runs.groupby(VARIANT)["memory_gb"].agg(set)
    lacking = limits.map(lambda have: sorted(set(runs["memory_gb"]) - have))
    return [f"{name} has no run at {', '.join(f'{gb:g}' for gb in gbs)} GB" for name, gbs in lacking.items() if gbs]


def setup_columns(runs: pd.DataFrame) -> list[str]:
    """Columns that hold everything about a run but its variant, its limit and its turn."""
    prefixes = tuple(f"config.{section}." for section in SETUP_SECTIONS)
    return [
        column
        for column in runs.columns
        if (column in SETUP_COLUMNS or column.startswith(prefixes)) and column not in PER_RUN_COLUMNS
    ]


def io_setup_columns(runs: pd.DataFrame) -> list[str]:
    """Columns that hold everything about a run of an I/O path by itself but the path, its grid and its turn."""
    return [
        name
        for name in runs.columns
        if (name in IO_SETUP_COLUMNS or name.startswith(IO_SETUP_PREFIXES)) and name not in PER_RUN_COLUMNS
    ]


def variant_columns(runs: pd.DataFrame) -> list[str]:
    """Columns that hold the settings of a variant."""
    return [column for column in runs.columns if column.startswith("config.variant.")]


def largest(
    runs: pd.DataFrame,
    columns: list[str],
    axes: tuple[str, ...] = AXES,
    preferred: Callable[[pd.DataFrame], bool] = lambda group: False,
) -> Selection:
    """Group by equal values of `columns` and take the group with most points (values of `axes`).

    Among groups with as many points: a `preferred` one, then the one with most runs, then the newest. Of its runs,
    only those `at_one_link_rate`.
    """
    groups = [(values, runs.loc[members]) for values, members in sorted(_by_values(runs, columns).items())]
    groups.sort(key=lambda group: _rank(group[1], axes, preferred(group[1])), reverse=True)
    (reference, first), *rest = groups
    others = tuple(_describe(group, axes[0], columns, values, reference) for values, group in rest)
    chosen = at_one_link_rate(first, axes)
    return Selection(chosen.runs, chosen.left_out + others)


def _by_values(runs: pd.DataFrame, columns: list[str]) -> dict[tuple[str, ...], list[str]]:
    """Names of runs by the values that they share, as text; missing is a value, too."""
    texts = [
        [str(value) if known else "None" for value, known in zip(runs[name].tolist(), runs[name].notna(), strict=True)]
        for name in columns
    ]
    groups: dict[tuple[str, ...], list[str]] = {}
    for run, values in zip(runs.index, zip(*texts, strict=True), strict=True):
        groups.setdefault(values, []).append(run)
    return groups


def as_text(values: pd.DataFrame) -> pd.DataFrame:
    """Values to compare runs by, whatever they are; missing is a value, too."""
    return values.astype(object).where(values.notna(), None).map(str)


def at_one_link_rate(runs: pd.DataFrame, axes: Iterable[str]) -> Selection:
    """Without the runs whose link was 5 % faster or slower than the median of their point (equal values of `axes`).

    device=paced_ratio measures the storage again when a sweep goes on, and paces the link anew. Of an even number the
    lower middle one is the median, so that it is a rate which a run had.
    """
    rates = pd.to_numeric(optional(runs, LINK_RATE))
    if rates.isna().all():
        return Selection(runs)
    points = rates.groupby([runs[axis] for axis in axes], dropna=False)
    usual = points.transform(lambda rate: rate.quantile(0.5, interpolation="lower"))
    off = runs[(rates / usual - 1).abs() > SAME_RATE]
    if off.empty:
        return Selection(runs)
    shown = ", ".join(f"{rate:.3g}" for rate in sorted(set(rates[off.index])))
    sentence = (
        f"{len(off)} {'run' if len(off) == 1 else 'runs'} with a link of {shown} GB/s, more than {SAME_RATE:.0%} off "
        "the median of the same point"
    )
    return Selection(runs.drop(index=off.index), (sentence,))


def _rank(group: pd.DataFrame, axes: tuple[str, ...], preferred: bool) -> tuple[int, bool, int, str]:
    points = group.groupby(list(axes), dropna=False).ngroups
    return points, preferred, len(group), str(group.get(STARTED_AT, pd.Series("")).max())


def _describe(
    group: pd.DataFrame, subject: str, columns: list[str], values: tuple[str, ...], reference: tuple[str, ...]
) -> str:
    differing = [
        f"{column.removeprefix('config.').removeprefix('environment.')}={value.removesuffix('.0')}"
        for column, value, usual in zip(columns, values, reference, strict=True)
        if value != usual
    ]
    names = ", ".join(sorted(group[subject].unique()))
    return f"{len(group)} {'run' if len(group) == 1 else 'runs'} of {names} with {', '.join(differing)}"
