"""Names below the results folder: one place for engine, harness, traces and analysis.

A run's folder is `results/<experiment>/<point>/rep-N/`. A name that starts with a dot is a run that is not complete.
"""

from __future__ import annotations

from pathlib import Path

RUNS = "[!.]*/[!.]*/rep-*"
UNFINISHED_RUNS = "[!.]*/[!.]*/.rep-*"


class RunFile:
    """Every file of a run's folder; `folder / RunFile.RESULT` is its path."""

    CONFIG = "config.yaml"  # the configuration, as composed
    ENVIRONMENT = "environment.json"  # machine, kernel, storage, code and packages
    RESULT = "result.json"  # what was measured, or why the run failed
    KV_IO = "kv_io.parquet"  # one row per read or write of a tensor
    EXTENTS = "extents.json"  # where the tensors are on the device
    ENGINE_LOG = "engine.log"
    GUEST_LOG = "guest.log"  # console of a guest that failed
    TRACE_TEXT = "trace.txt"  # the tracer's output
    TRACE_LOG = "trace.log"  # the tracer's messages
    DEVICE_IO = "device_io.parquet"  # one row per command of the device
    IO_LAYERS = "io_layers.parquet"  # when each request passed the layers of the kernel
    PAGE_CACHE = "page_cache.parquet"  # events of the page cache over time
    BLOCK_LATENCY = "block_latency.json"  # histograms of latencies


def run_folder(point_folder: Path, repetition: int) -> Path:
    """The folder of one repetition of a point."""
    return point_folder / f"rep-{repetition}"
