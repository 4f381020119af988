"""Claims on the ways to the storage by themselves: C20."""

from __future__ import annotations

import pandas as pd

from analysis.claims.verdict import Claim, Finding, Untestable, graded
from analysis.claims.wording import basis, names, share
from analysis.metrics.run_metrics import io_cells
from analysis.metrics.stats import interval
from analysis.names import IO_OP, IO_PATH
from analysis.selection.comparison import OVER_IO_PATHS
from analysis.selection.setups import Setup

PASSTHROUGH, BUFFERED = "io_uring_cmd", "ext4_buffered"
LATENCY = "latency_p50_us"  # a busy host moves a mean by a few requests


def passthrough_against_spdk(claim: Claim, setup: Setup) -> Finding:
    """C20: median latencies of reads at equal request size and depth, io_uring_cmd over buffered ext4.

    The harness has no SPDK, so the claim as a whole cannot be reproduced. Cells in which both paths move all that the
    device gives are left out: there the device decides the latency.
    """
    reads = setup.io[setup.io[IO_OP] == "read"] if len(setup.io) else setup.io
    if reads.empty or PASSTHROUGH not in set(reads[IO_PATH]):
        raise Untestable("it takes io_uring_cmd, hence an NVMe namespace, among the I/O paths that were measured")
    reads = OVER_IO_PATHS.select(reads).runs
    cells = io_cells(reads).pivot_table(index=["request_kib", "queue_depth"], columns="path", aggfunc="median")
    if not {PASSTHROUGH, BUFFERED} <= set(cells[LATENCY]):
        raise Untestable("it takes io_uring_cmd and buffered reads of the same device's file system at equal settings")
    over_ext4 = _ratios(cells, BUFFERED, claim.thresholds["device_pct"])
    if over_ext4.empty:
        raise Untestable("at every size and depth measured both paths moved all that the device gives")
    measured = over_ext4.median()
    text = f"{measured:.2f}x buffered ext4's latency, below it in {share((over_ext4 < 1).mean())} of the cells"
    reason = f"{basis(reads)} SPDK was not measured, so the half of the claim on SPDK is not judged."
    verdict = graded(reproduced=False, direction=measured < 1)
    return Finding(verdict, measured, interval(over_ext4), text, names(reads), reason=reason)


def _ratios(cells: pd.DataFrame, other: str, device_pct: float) -> pd.Series:
    """Latency of io_uring_cmd over the other path's in each cell that the device's rate does not decide."""
    latency, rate = cells[LATENCY], cells["gb_per_s"]
    at_device_rate = (rate[[PASSTHROUGH, other]] >= device_pct / 100 * rate.max(axis=None)).all(axis="columns")
    return (latency[PASSTHROUGH] / latency[other])[~at_device_rate].dropna()
