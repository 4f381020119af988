"""One function per claim: (claim, setup) -> finding, or `Untestable` with the reason. Grouped by what they look at."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.claims import cost, device, hit_rate, io_paths, latency, phases, pipeline, wrangling
from analysis.claims.verdict import Judge

JUDGES: Mapping[str, Judge] = {
    "C1": latency.prefill_latency,
    "C2": latency.decode_latency,
    "C3": device.throughput,
    "C4": hit_rate.cliff,
    "C5": latency.write_stalls,
    "C6": latency.eager_eviction_is_linear,
    "C7": latency.direct_is_flat,
    "C8": latency.fastest_everywhere,
    "C9": hit_rate.follows_memory,
    "C10": phases.share_of_disk,
    "C11": device.baseline_busy,
    "C12": device.small_writes,
    "C13": device.request_latency,
    "C14": device.lba_pattern,
    "C15": device.submission_queues,
    "C16": device.time_by_depth,
    "C17": pipeline.adaptive_choice,
    "C18": pipeline.converges_to_cross,
    "C19": wrangling.tasks,
    "C20": io_paths.passthrough_against_spdk,
    "C22": cost.pinned_memory,
}
