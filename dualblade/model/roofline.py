"""Compute time of a replayed layer, from the roofline of a named GPU: the slower of its arithmetic and its memory.

A replay at scale N moves 1/N of the KV bytes, so it also gets 1/N of the full-scale compute time: the share of compute
in a layer stays what it is at scale 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from dualblade.config.device import GpuConfig
from dualblade.config.run import ModelConfig, RunConfig
from dualblade.geometry import DTYPE_BYTES


@dataclass(frozen=True)
class ComputeTime:
    """Seconds of compute per layer in each phase, and where the numbers come from (None: no compute at all)."""

    source: str | None
    prefill_layer_s: float
    decode_layer_s: float


def compute_time(config: RunConfig) -> ComputeTime:
    """Per-layer compute of the run's model and workload on its device's GPU, at the run's scale."""
    gpu = config.device.gpu
    if gpu is None:
        return ComputeTime(None, 0.0, 0.0)
    batch, prompt = config.workload.batch_size, config.workload.prompt_tokens
    return ComputeTime(
        source=f"roofline of {gpu.name} at {gpu.efficiency:.0%}, over scale {config.scale}",
        prefill_layer_s=layer_s(config.model, gpu, batch, prompt, 0) / config.scale,
        decode_layer_s=layer_s(config.model, gpu, batch, 1, prompt) / config.scale,
    )


def layer_s(model: ModelConfig, gpu: GpuConfig, batch: int, new_tokens: int, past_tokens: int) -> float:
    """Seconds for `batch` sequences of `new_tokens` behind `past_tokens` through one layer.

    Two operations per weight and token; two products of Q and K, and of the scores and V, over the tokens seen on
    average (causal); each weight and each cached K and V is read once from the GPU's memory.
    """
    tokens = batch * new_tokens
    seen_tokens = past_tokens + (new_tokens + 1) / 2
    attention_width = model.n_heads * model.head_dim
    operations = 2 * tokens * model.layer_parameters + 4 * tokens * seen_tokens * attention_width
    kv_values = 2 * batch * (past_tokens + new_tokens) * model.n_kv_heads * model.head_dim
    memory_bytes = (model.layer_parameters + kv_values) * DTYPE_BYTES[model.dtype]
    at_peak_s = max(operations / (gpu.peak_tflops * 1e12), memory_bytes / (gpu.memory_gb_per_s * 1e9))
    return at_peak_s / gpu.efficiency
