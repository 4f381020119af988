"""All figures by name, in the order in which they are drawn."""

from __future__ import annotations

from analysis.figures import (
    e2e_latency,
    guest_sweeps,
    hit_rate,
    io_paths,
    lru_generation,
    overlap_model,
    phase_breakdown,
    pipeline,
    thrashing,
    throughput_dynamics,
    wrangling,
    wrangling_records,
)
from analysis.figures.device import (
    access_pattern,
    device_latency_table,
    disk_throughput,
    io_layers,
    latency_by_depth,
    lba_pattern,
)
from analysis.figures.spec import FigureSpec

FIGURES: dict[str, FigureSpec] = {
    "thrashing": thrashing.FIGURE,
    "phase_breakdown": phase_breakdown.FIGURE,
    "e2e_latency": e2e_latency.FIGURE,
    "hit_rate": hit_rate.FIGURE,
    "e2e_latency_guest": guest_sweeps.E2E_LATENCY,
    "hit_rate_guest": guest_sweeps.HIT_RATE,
    "lru_generation": lru_generation.FIGURE,
    "io_paths": io_paths.FIGURE,
    "pipeline": pipeline.FIGURE,
    "overlap_model": overlap_model.FIGURE,
    "throughput_dynamics": throughput_dynamics.FIGURE,
    "wrangling": wrangling.FIGURE,
    "wrangling_records": wrangling_records.FIGURE,
    "io_layers": io_layers.FIGURE,
    "device_latency_table": device_latency_table.FIGURE,
    "disk_throughput": disk_throughput.FIGURE,
    "latency_by_depth": latency_by_depth.FIGURE,
    "access_pattern": access_pattern.FIGURE,
    "lba_pattern": lba_pattern.FIGURE,
}
