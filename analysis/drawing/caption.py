"""The origin of a figure's numbers in words: a note inside the image, and a whole caption beside it.

The note keeps testbed, backend, scale and repetitions with the image; the caption holds the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from analysis.drawing.style import looks
from analysis.metrics.stats import describe_interval
from analysis.names import (
    BACKEND,
    CGROUP,
    CODE_HASH,
    CODE_REVISION,
    DEVICE,
    DISK,
    DISK_MODEL,
    EMULATED,
    FILE_SYSTEM,
    GPU,
    IO_OP,
    IO_PATH,
    KERNEL,
    LINK_RATE,
    LINK_RATIO,
    MODEL,
    OVERHEAD_GB,
    PACE_NAME,
    SCALE,
    SSD,
    TESTBED,
    VARIANT,
    WORKLOAD,
)
from analysis.results.load import optional
from traces import schema

REVISION_CHARS = 10
MANY_WORKLOADS = 4
MAX_RATES = 4


def note(data: pd.DataFrame) -> str:
    """The few words that must stay with the image."""
    return (
        f"Testbed {'; '.join(filter(None, [_testbed(data), _storage(data), _paced_link(data)]))}. {_workload(data)}. "
        f"{len(data)} runs, {_per_point(data)}. {_overhead_gb(data)} GB overhead assumed."
    )


def provenance(subject: str, data: pd.DataFrame) -> str:
    """Everything that a reader needs to judge the figure."""
    return " ".join(
        [
            subject,
            f"{len(data)} runs, {_per_point(data)}; {describe_interval(_runs_per_point(data))}.",
            f"Testbed {_testbed(data)}; {_storage(data)}; {_storage_settings(data)}.",
            f"{_workload(data)}, {_each(data['decode_iterations'])} decode iterations: the first one is cold and "
            "in no decode value. Times hold for this scale and are not extrapolated to another.",
            f"Device {_device(data)}.",
            f"Limit of a run = its process + (memory - {_overhead_gb(data)} GB) / {_each(data[SCALE])}, "
            f"where {_overhead_gb(data)} GB for all but KV is an assumption of this project: the paper does not say.",
            f"{_system(data)}.",
            _revisions(data),
        ]
    )


def trace_note(data: pd.DataFrame) -> str:
    """The note for traced runs, which are all at one limit."""
    return f"{note(data)} Limit {_each(data['memory_gb'].map('{:g}'.format))} GB, traced."


def trace_provenance(subject: str, data: pd.DataFrame) -> str:
    """The caption for traced runs: also how commands were traced, how many were missed, and the cost of tracing."""
    infos = [schema.read_info(folder / schema.FILE_NAME) for folder in data["folder"]]
    events = sum(info.printed_events for info in infos)
    sources = _each(info.source for info in infos)
    limits = _each(data["memory_gb"].map("{:g}".format))
    trace = f"Memory limit {limits} GB. Commands traced by {sources}: {events:,} events{_losses(infos)}."
    return f"{provenance(subject, data)} {trace} {_tracing_cost(data)}"


def _losses(infos: Sequence[schema.TraceInfo]) -> str:
    """Events that valid traces lack. A source that does not count them counts as complete."""
    missed = sum(info.missed_commands or 0 for info in infos)
    skipped = sum(info.skipped_probes or 0 for info in infos)
    losses = [f"; the disks' own statistics count {missed:,} commands more"] if missed else []
    losses += [f"; the kernel skipped a probe {skipped:,} times"] if skipped else []
    return "".join(losses) or ", none lost"


def _tracing_cost(data: pd.DataFrame) -> str:
    """A sentence on the cost of tracing: the median of each testbed's variants."""
    known = data.dropna(subset=["tracing_cost"])
    if known.empty:
        return "The cost of tracing was not measured: there are no untraced runs of the same points."
    found = "; ".join(f"{name}: {_cost_by_variant(runs)}" for name, runs in known.groupby(TESTBED))
    return f"Decode latency with the tracer against runs without it, {found}."


def _cost_by_variant(runs: pd.DataFrame) -> str:
    costs = runs.groupby(VARIANT)["tracing_cost"].median()
    return ", ".join(
        f"{look.label} {100 * costs[name]:+.0f} %" for name, look in looks(costs.index.to_series()).items()
    )


def io_note(data: pd.DataFrame) -> str:
    """The note for runs of I/O paths by themselves."""
    stand_ins = data["result.target"][data["result.target"].str.contains("loop")]
    target = f"; block device: {_each(stand_ins)}" if len(stand_ins) else ""
    direction = _each(data[IO_OP])
    return f"Testbed {_testbed(data)}{target}. Random {direction}s by fio. {len(data)} runs, {_io_per_point(data)}."


def io_provenance(subject: str, data: pd.DataFrame) -> str:
    """Everything that a reader needs to judge a figure of I/O paths."""
    sizes = data["config.io.size_mib"].map(int)
    return " ".join(
        [
            subject,
            f"{len(data)} runs, {_io_per_point(data)}; {describe_interval(data.groupby(IO_PATH).size())}.",
            f"Testbed {_testbed(data)}; {_each(data['result.target'])}; {_storage_settings(data)}.",
            f"Measured by {_each(data[CODE_HASH])}: {_each(data[IO_OP])}s in random order, each "
            f"block of {_each(sizes)} MiB at most once, from a cold page cache; buffers in "
            f"{_each(data['result.buffers'])}. Latency is from submission to completion.",
            f"Kernel {_each(data[KERNEL])}.",
            "SPDK was not measured.",
        ]
    )


def overlap_note(data: pd.DataFrame, point: list[str]) -> str:
    """The note for runs that differ in how storage and link overlap; `point`: the columns that tell points apart."""
    return (
        f"Testbed {_testbed(data)}; {_storage(data)}; {_paces(data)}. {_workload(data)}. "
        f"{len(data)} runs, {_range(data.groupby(point, dropna=False).size())}."
    )


def overlap_provenance(subject: str, data: pd.DataFrame, point: list[str]) -> str:
    """Everything that a reader needs to judge a figure of how storage and link overlap."""
    sizes = data.groupby(point, dropna=False).size()
    return " ".join(
        [
            subject,
            f"{len(data)} runs, {_range(sizes)}; {describe_interval(sizes)}.",
            f"Testbed {_testbed(data)}; {_storage(data)}; {_storage_settings(data)}; {_paces(data)}.",
            f"{_workload(data)}, {_each(data['decode_iterations'])} decode iterations, the first of which is cold. "
            "Times hold for this scale and are not extrapolated to another.",
            f"Device {_each(data[DEVICE])}, {_compute(data)}.",
            f"Variant {_each(data[VARIANT])}, {_limit(data)}.",
            f"{_system(data)}.",
            _revisions(data),
        ]
    )


def _device(data: pd.DataFrame) -> str:
    parts = [_each(data[DEVICE]), _paced_link(data), _compute(data)]
    return ", ".join(part for part in parts if part)


def _paces(data: pd.DataFrame) -> str:
    """The paced parts: the storage of the direct path, and the link."""
    storage = _each(optional(data, PACE_NAME))
    parts = [f"storage paced as {storage}"] if storage else []
    return ", ".join([*parts, _paced_link(data) or "link: the host's own copy"])


def _paced_link(data: pd.DataFrame) -> str:
    """The rates of a paced link, with their ratios to the SSD's rate if set by ratio; "" of another link."""
    rates = sorted(set(optional(data, LINK_RATE).dropna()))
    if not rates:
        return ""
    ratios = sorted(set(optional(data, LINK_RATIO).dropna()))
    few = len(rates) <= MAX_RATES
    shown = ", ".join(f"{rate:.3g}" for rate in rates) if few else f"{rates[0]:.3g} to {rates[-1]:.3g}"
    if ratios:
        return f"paced link, {', '.join(f'{ratio:g}x' for ratio in ratios)} SSD ({shown} GB/s)"
    return f"link paced to {shown} GB/s ({_each(optional(data, 'result.link.source'))})"


def _io_per_point(data: pd.DataFrame) -> str:
    return _range(data.groupby(IO_PATH).size())


def _testbed(data: pd.DataFrame) -> str:
    emulated = optional(data, EMULATED).astype("boolean").fillna(False).any()
    return _each(data[TESTBED]) + (" (emulated SSD)" if emulated else "")


def _storage(data: pd.DataFrame) -> str:
    return f"backend {_each(data[BACKEND])}"


def _storage_settings(data: pd.DataFrame) -> str:
    disk = _each(optional(data, DISK_MODEL).fillna(optional(data, DISK)), "unknown")
    file_system = _each(optional(data, FILE_SYSTEM), "unknown file system")
    read_ahead = _each(optional(data, "environment.storage.read_ahead_kb"), "unknown")
    held_back = optional(data, "environment.cgroup.dirty_pages.by").dropna()
    writeback = f", dirty pages held back by {_each(held_back)}" if len(held_back) else ""
    return f"disk {disk}, {file_system}, read_ahead_kb {read_ahead}{writeback}"


def _workload(data: pd.DataFrame) -> str:
    source = "replay of" if _each(optional(data, "config.workload.source"), "replay") == "replay" else "model"
    scale = data[SCALE]
    batch = _each(data["config.workload.batch_size"] // scale)
    names = data[WORKLOAD]
    workload = f"workload {_each(names)}" if names.nunique() < MANY_WORKLOADS else f"{names.nunique()} workloads"
    return f"{source.capitalize()} {_each(data[MODEL])}, {workload}, scale {_each(scale)} (batch {batch})"


def _compute(data: pd.DataFrame) -> str:
    if "model" in set(optional(data, "config.workload.source")):
        return "the model itself computes"
    gpu = _each(optional(data, GPU), "")
    return f"each layer waits for the compute time of {gpu} (roofline)" if gpu else "no compute time"


def _overhead_gb(data: pd.DataFrame) -> str:
    return _each(data[OVERHEAD_GB].map("{:g}".format))


def _limit(data: pd.DataFrame) -> str:
    """The memory limits in words; `no memory limit` if no run has one."""
    limits = _each(data["memory_gb"].dropna().map("{:g} GB".format))
    return f"memory limit {limits}" if limits else "no memory limit"


def _system(data: pd.DataFrame) -> str:
    kernel = _each(data[KERNEL])
    cgroup = _each(optional(data, CGROUP), "unknown")
    mixed = " (the figure mixes kernels)" if data[KERNEL].nunique() > 1 else ""
    return f"Kernel {kernel}{mixed}, cgroup v{cgroup}, {_each(data['lru'])} LRU"


def _revisions(data: pd.DataFrame) -> str:
    revisions = _each(optional(data, CODE_REVISION).astype("string").str[:REVISION_CHARS], "unknown")
    mixed = "the figure mixes engines" if data[CODE_HASH].nunique() > 1 else "one engine"
    dirty = optional(data, "environment.code_dirty").astype("boolean").fillna(False).any()
    return f"Code {revisions}{' with uncommitted changes' if dirty else ''} ({mixed})."


def _runs_per_point(data: pd.DataFrame) -> list[int]:
    point = [*SSD, "lru", WORKLOAD, VARIANT, "memory_gb"]
    return list(data.reindex(columns=point).groupby(point, dropna=False).size())


def _per_point(data: pd.DataFrame) -> str:
    return _range(_runs_per_point(data))


def _range(runs_per_point: Iterable[int]) -> str:
    counts = sorted(set(runs_per_point))
    return f"{counts[0]} per point" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} per point"


def _each(values: Iterable[object] | pd.Series, missing: str = "") -> str:
    """The distinct values, in a sentence."""
    distinct = pd.Series(values).dropna().astype(str).unique().tolist()
    return " and ".join(sorted(distinct)) or missing
