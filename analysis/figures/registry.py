"""All figures by name, in the order in which they are drawn."""

from __future__ import annotations

from analysis.figures import (
    access_pattern,
    device_latency_table,
    disk_throughput,
    e2e_latency,
    e2e_latency_guest,
    hit_rate,
    hit_rate_guest,
    io_layers,
    io_paths,
    latency_by_depth,
    lba_pattern,
    lru_generation,
    overlap_model,
    phase_breakdown,
    pipeline,
    thrashing,
    throughput_dynamics,
    wrangling,
    wrangling_records,
)
from analysis.figures.spec import FigureSpec

MODULES = (
    thrashing,
    phase_breakdown,
    e2e_latency,
    hit_rate,
    e2e_latency_guest,
    hit_rate_guest,
    lru_generation,
    io_paths,
    pipeline,
    overlap_model,
    throughput_dynamics,
    wrangling,
    wrangling_records,
    io_layers,
    device_latency_table,
    disk_throughput,
    latency_by_depth,
    access_pattern,
    lba_pattern,
)
FIGURES: dict[str, FigureSpec] = {module.__name__.rpartition(".")[2]: module.FIGURE for module in MODULES}
