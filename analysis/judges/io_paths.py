"""Claims on the ways to the storage by themselves: C20."""

from __future__ import annotations

from analysis.claims import Claim, Finding, Untestable, graded
from analysis.evidence import Setup
from analysis.judges.wording import names, share
from analysis.metrics import io_cells
from analysis.stats import interval

PASSTHROUGH, POLLED, BUFFERED = "io_uring_cmd", "spdk", "ext4_buffered"


def passthrough_against_spdk(claim: Claim, setup: Setup) -> Finding:
    """C20: mean latencies of reads at equal request size and depth, io_uring_cmd over SPDK and over buffered ext4."""
    reads = setup.io[setup.io["config.io.op"] == "read"] if len(setup.io) else setup.io
    if reads.empty or PASSTHROUGH not in set(reads["config.io.path"]):
        raise Untestable("it takes io_uring_cmd, hence an NVMe namespace, among the I/O paths that were measured")
    latency = io_cells(reads).pivot_table(
        index=["request_kib", "queue_depth"], columns="path", values="latency_us", aggfunc="median"
    )
    if BUFFERED not in latency:
        raise Untestable("it takes buffered reads of the same device's file system to compare with")
    over_ext4 = (latency[PASSTHROUGH] / latency[BUFFERED]).dropna()
    measured = over_ext4.median()
    text = f"{measured:.2f}x buffered ext4's latency, below it in {share((over_ext4 < 1).mean())} of the cells"
    reason, level = "SPDK's perf tool is not here, so the half of the claim on SPDK is not judged.", False
    if POLLED in latency:
        over_spdk = (latency[PASSTHROUGH] / latency[POLLED]).median()
        level = abs(over_spdk - 1) <= claim.thresholds["level_pct"] / 100
        text, reason = f"{over_spdk:.2f}x SPDK's latency; {text}", ""
    verdict = graded(reproduced=level and measured < 1, direction=measured < 1)
    return Finding(verdict, measured, interval(over_ext4), text, names(reads), reason=reason)
