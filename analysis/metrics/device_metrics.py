"""What is measured at the device, each quantity defined once: commands of a trace to numbers.

Source of all: device_io.parquet (traces/schema.py), beside kv_io.parquet for what the engine was doing. A request is
the engine's operation on a tensor or a row of it, a command what the device got; times are ns of one clock. The cold
decode iteration counts in none of them (analysis/results/device_io.py).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.metrics import intervals
from analysis.results.device_io import KINDS, DeviceIO, RequestKind, load_device_io

NS_PER_US, NS_PER_MS, NS_PER_S = 10**3, 10**6, 10**9
KB = 10**3
DEPTH_BINS = (1, 2, 4, 8, 16, 32, 64)  # lower ends; the last is open


def busy_rate(io: DeviceIO, kind: RequestKind) -> float:
    """Share, from 0 to 1, of the time of a request kind in which the device had at least one command in flight.

    The time of a kind is the union of its requests' transfers to or from storage (kv_io.parquet, storage_start_ns to
    storage_end_ns). Any command counts: the device is as busy with the kernel's readahead or writeback. Not a number
    without such requests.
    """
    requests = io.requests_of(kind)
    time = intervals.union(requests["storage_start_ns"], requests["storage_end_ns"])
    in_flight = intervals.union(io.commands["issue_ns"], io.commands["complete_ns"])
    return intervals.overlap(time, in_flight) / intervals.length(time) if len(time) else float("nan")


def command_latency_us(commands: pd.DataFrame) -> pd.Series:
    """Microseconds from a command's issue to its completion."""
    return (commands["complete_ns"] - commands["issue_ns"]) / NS_PER_US


def us_per_kb(commands: pd.DataFrame) -> pd.Series:
    """Microseconds from issue to completion for each 1000 bytes of a command, comparable over command sizes."""
    return command_latency_us(commands) / (commands["bytes"] / KB)


def request_latency_ms(requests: pd.DataFrame) -> pd.Series:
    """Milliseconds of a request's transfer to or from storage by whichever path, without the copy over the link."""
    return (requests["storage_end_ns"] - requests["storage_start_ns"]) / NS_PER_MS


def gb_per_s(io: DeviceIO, kind: RequestKind) -> float:
    """Bytes that the device moved for a kind, over the wall time from the kind's first request to its last one's end.

    The sum over decode iterations for decode. Compute and copies in between count as time: it is what the device was
    left to do. Not a number without requests.
    """
    requests, commands = io.requests_of(kind), io.commands_of(kind)
    iterations = requests.groupby("iteration")
    spans_ns = iterations["storage_end_ns"].max() - iterations["storage_start_ns"].min()
    return commands["bytes"].sum() / spans_ns.sum() if len(spans_ns) else float("nan")


def utilisation(moved_gb_per_s: float, device_gb_per_s: float) -> float:
    """Share of the device's own rate that a request kind got out of it, by its `gb_per_s`.

    The device's own rate, in GB/s of the kind's direction, is what fio measured on the same testbed and storage
    (traced.with_device_rates); not a number where it is not known. Above 1 where a run was faster than fio.
    """
    return moved_gb_per_s / device_gb_per_s


def sequential_runs(commands: pd.DataFrame, stream: Sequence[str] = ("device",)) -> pd.Series:
    """Bytes of each sequential run.

    A run is as many commands of one stream as follow each other, in the order of issue, in one direction, each
    beginning where the one before ended. The stream is what is looked at: the device (what its flash sees), one of its
    queues ("device", "queue"), or a tensor ("device", "layer", "kind": the order within a tensor whatever else is
    going on).
    """
    keys = list(dict.fromkeys(["device", *stream, "op"]))
    by_stream = commands.dropna(subset=keys).sort_values([*keys, "issue_ns"])
    begins = ~_follows(by_stream, keys)
    return by_stream["bytes"].groupby(begins.cumsum()).sum()


def _follows(ordered: pd.DataFrame, keys: Sequence[str]) -> pd.Series:
    """Whether each command, in the order of issue, begins where the one before it of the same `keys` ended."""
    ends = ordered["offset_bytes"] + ordered["bytes"]
    return ordered["offset_bytes"] == ends.groupby([ordered[key] for key in keys], observed=True).shift()


def in_order(commands: pd.DataFrame, stream: Sequence[str] = ("device", "queue")) -> float:
    """Share, from 0 to 1, of commands of one request kind that begin where the one before in their stream ended.

    The first command of each tensor's transfer does not count, since nothing says where it has to begin: so the share
    is 1 in the tensors' own order and 0 in none, whatever the size of the commands. Not a number where no transfer
    takes two commands.
    """
    ordered = commands.sort_values("issue_ns", kind="stable")
    later = ordered.duplicated(["iteration", "layer", "kind"])
    return float(_follows(ordered, stream)[later].mean())


def kb_per_run(commands: pd.DataFrame, stream: Sequence[str] = ("device",)) -> float:
    """Mean length of a sequential run in KB (1000 bytes); see `sequential_runs`."""
    return float(sequential_runs(commands, stream).mean() / KB)


def effective_queues(commands: pd.DataFrame) -> float:
    """How many queues the commands spread over: exp(entropy of the queues' shares), 1 when all are in one."""
    shares = commands["queue"].value_counts(normalize=True)
    return float(np.exp(-(shares * np.log(shares)).sum())) if len(shares) else float("nan")


def depth_bin(commands: pd.DataFrame) -> pd.Series:
    """Lower end of the queue-depth bin of each command, by the commands in flight at its issue, itself included."""
    bins = np.searchsorted(DEPTH_BINS, commands["depth_at_issue"], side="right") - 1
    return pd.Series(np.array(DEPTH_BINS)[np.maximum(bins, 0)], index=commands.index)


def by_depth(commands: pd.DataFrame) -> pd.DataFrame:
    """us/KB by queue-depth bin: columns depth, p5, median, p95, commands. Unknown depths are left out."""
    known = commands[(commands["depth_at_issue"] > 0) & (commands["bytes"] > 0)]
    groups = us_per_kb(known).groupby(depth_bin(known).rename("depth"))
    percentiles = groups.quantile([0.05, 0.5, 0.95]).unstack()
    percentiles = percentiles.reindex(columns=[0.05, 0.5, 0.95]).set_axis(["p5", "median", "p95"], axis=1)
    return percentiles.assign(commands=groups.size()).reset_index()


def throughput(commands: pd.DataFrame, begin_ns: int, end_ns: int, bins: int) -> pd.DataFrame:
    """GB/s over a span of time in equal bins: columns seconds (middle of a bin, from the span's begin), gb_per_s.

    A command's bytes count evenly over the time from its issue to its completion.
    """
    edges = np.linspace(begin_ns, end_ns, bins + 1)
    begin, end = (commands[name].to_numpy(float) for name in ("issue_ns", "complete_ns"))
    rate = commands["bytes"].to_numpy(float) / np.maximum(end - begin, 1)
    moved = _moved_until(edges, begin, np.maximum(end, begin + 1), rate)
    return pd.DataFrame(
        {"seconds": (edges[:-1] + edges[1:] - 2 * begin_ns) / 2 / NS_PER_S, "gb_per_s": np.diff(moved) / np.diff(edges)}
    )


def _moved_until(edges: np.ndarray, begin: np.ndarray, end: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Bytes moved until each edge: the integral of the sum of rates, which changes at each begin and end."""
    times = np.concatenate([begin, end])
    order = np.argsort(times, kind="stable")
    times, slopes = times[order], np.cumsum(np.concatenate([rate, -rate])[order])
    moved = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(times))]) if len(times) else np.zeros(0)
    return np.interp(edges, times, moved) if len(times) else np.zeros(len(edges))


@functools.lru_cache(maxsize=256)
def metrics_of(run_dir: Path) -> Mapping[str, float]:
    """The metrics of a run's trace, which several claims and a figure look at.

    Raises:
        ResultsError: the trace cannot be used.
    """
    return device_metrics(load_device_io(run_dir))


def device_metrics(io: DeviceIO) -> dict[str, float]:
    """All of a trace's own metrics as one flat record, by request kind where they have one: `busy_rate.decode_read`."""
    record: dict[str, float] = {}
    for kind in KINDS:
        name, commands, requests = f"{kind.phase}_{kind.op}", io.commands_of(kind), io.requests_of(kind)
        record |= {
            f"commands.{name}": len(commands),
            f"busy_rate.{name}": busy_rate(io, kind),
            f"gb_per_s.{name}": gb_per_s(io, kind),
            f"kb_per_run_device.{name}": kb_per_run(commands),
            f"kb_per_run_queue.{name}": kb_per_run(commands, ("device", "queue")),
            f"in_order.{name}": in_order(commands),
            f"kb_per_run_tensor.{name}": kb_per_run(commands, ("device", "layer", "kind")),
            f"queues.{name}": effective_queues(commands),
            **_spread(f"command_us.{name}", command_latency_us(commands)),
            **_spread(f"us_per_kb.{name}", us_per_kb(commands)),
            **_spread(f"request_ms.{name}", request_latency_ms(requests)),
        }
    return record


def _spread(name: str, values: pd.Series) -> dict[str, float]:
    return {f"{name}.mean": values.mean(), f"{name}.p50": values.quantile(0.5), f"{name}.p99": values.quantile(0.99)}
