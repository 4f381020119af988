"""Metrics of runs, each defined once. A metric maps loaded results to one value per run.

Times are those of the run's own scale (a batch of the paper's 32 / scale); nothing is extrapolated to another scale.
"""

from __future__ import annotations

import dataclasses

import pandas as pd

from analysis.names import IO_PATH, OVERHEAD_GB, SCALE
from analysis.results import kernel_series
from analysis.results.load import Results, optional

GB = 10**9
CELL = ("request_bytes", "queue_depth", "latency_us.mean", "latency_us.p50", "bytes_per_s")


def prefill_s(results: Results) -> pd.Series:
    """Prefill latency in seconds. Source: `prefill_s` of result.json."""
    return results.runs["result.prefill_s"].astype(float)


def task_s(results: Results) -> pd.Series:
    """Seconds of a whole batch of requests: prefill and every decode iteration, the cold one included.

    Source: `prefill_s` and `decode_s` of result.json.
    """
    decode_s = results.iterations.groupby("run")["decode_s"].sum()
    return prefill_s(results) + decode_s.reindex(results.runs.index, fill_value=0.0)


def decode_s_per_token(results: Results) -> pd.Series:
    """Decode latency in seconds per decoded token (of every sequence of the batch at once).

    Source: `decode_s` of result.json. The median over iterations 2 and later, since iteration 1 is cold: it finds the
    cache as prefill left it. A run of a single iteration has no value.
    """
    warm = results.iterations[results.iterations["iteration"] > 1]
    return warm.groupby("run")["decode_s"].median().reindex(results.runs.index)


def decode_hit_rate(results: Results) -> pd.Series:
    """Share, from 0 to 1, of the KV bytes read in decode that came from memory: 1 - device_read / asked_read.

    Source: `hit_rate.decode` of result.json, over the bytes of iterations 2 and later; the device bytes are the
    kernel's own account of each thread's block reads. A run of a single, cold iteration has no value.
    """
    return results.runs["result.hit_rate.decode"].astype(float).where(decode_iterations(results) > 1)


def wait_over_recompute(results: Results) -> pd.Series:
    """Time that a decode iteration waits for the KV, over the time to compute that KV again; below 1 offloading pays.

    Source: `phases` of result.json, the stalls of decode on storage and link per iteration over the compute of
    prefill. Not a number in a run without compute time.
    """
    runs = results.runs
    waited_s = sum(optional(runs, f"result.phases.decode.{part}_stall_s").astype(float) for part in ("storage", "link"))
    compute_s = optional(runs, "result.phases.prefill.compute_s").astype(float)
    return waited_s / decode_iterations(results) / compute_s.where(compute_s > 0)


def memory_gb(results: Results) -> pd.Series:
    """Memory limit in GB of the paper's axis, which counts the paper's overhead; not a number when there was no limit.

    Source: `memory_gb` of config.yaml; where `budget_ratio` replaced it, the limit that gives the same budget.
    """
    runs = results.runs
    limit_gb = pd.to_numeric(optional(runs, "config.memory_gb"))
    ratio = pd.to_numeric(optional(runs, "config.budget_ratio"))
    from_ratio = runs[OVERHEAD_GB] + ratio * working_set_gb(results)
    return from_ratio.fillna(limit_gb).astype(float).round(4)


def working_set_gb(results: Results) -> pd.Series:
    """KV working set in GB at the paper's scale: what the page cache must keep for every read of the run to hit.

    Source: `plan.working_set_bytes` of result.json, the prompt's rows and one for each decode iteration that was run.
    """
    return results.runs["result.plan.working_set_bytes"] * results.runs[SCALE] / GB


def decode_iterations(results: Results) -> pd.Series:
    """Decode iterations that the run did, the cold first one included. Source: length of `decode_s` in result.json."""
    return results.runs["result.decode_s"].map(len)


def alpha(results: Results) -> pd.Series:
    """Share of the layers in DRAM, 0 to 1. Source: `plan` of result.json."""
    columns = (optional(results.runs, f"result.plan.{name}") for name in ("n1", "n_layers"))
    n1, n_layers = (pd.to_numeric(column, errors="coerce") for column in columns)
    return n1 / n_layers


def lru(results: Results) -> pd.Series:
    """The kernel's page replacement, by its name. Source: `lru_generation` of environment.json."""
    switches = optional(results.runs, "environment.lru_generation").astype(object)
    return switches.map(lambda switch: kernel_series.lru(None if pd.isna(switch) else switch))


def io_cells(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per cell of runs of I/O paths.

    Columns path, request_kib, queue_depth, latency_us, latency_p50_us, us_per_kb, gb_per_s. `latency_us` is the mean
    from a request's submission to its completion, `latency_p50_us` the median, and `us_per_kb` the mean per 1000 bytes.
    Source: `cells` of result.json, as fio measured them.
    """
    cells = runs["result.cells"].explode()
    frame = pd.json_normalize(list(cells)).set_axis(cells.index) if len(cells) else pd.DataFrame(columns=list(CELL))
    return pd.DataFrame(
        {
            "path": runs[IO_PATH].reindex(cells.index).to_numpy(),
            "request_kib": frame["request_bytes"] / 1024,
            "queue_depth": frame["queue_depth"],
            "latency_us": frame["latency_us.mean"],
            "latency_p50_us": frame["latency_us.p50"],
            "us_per_kb": frame["latency_us.mean"] / (frame["request_bytes"] / 1000),
            "gb_per_s": frame["bytes_per_s"] / GB,
        }
    )


def measure(results: Results) -> pd.DataFrame:
    """Return the runs with one more column per metric."""
    metrics = (
        prefill_s,
        task_s,
        decode_s_per_token,
        decode_hit_rate,
        wait_over_recompute,
        memory_gb,
        working_set_gb,
        decode_iterations,
        alpha,
        lru,
    )
    return results.runs.assign(**{metric.__name__: metric(results) for metric in metrics})


def with_metrics(results: Results) -> Results:
    """Return results whose runs have a column for each metric."""
    return dataclasses.replace(results, runs=measure(results))
