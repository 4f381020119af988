"""Compute time of a replayed layer against bounds worked out by hand."""

from __future__ import annotations

import pytest

from dualblade.config.device import GpuConfig
from dualblade.config.run import ModelConfig
from dualblade.model.roofline import layer_s

OPT_6_7B = ModelConfig("opt_6_7b", 32, 32, 32, 128, 4096, 16384, 2)
GPU = GpuConfig("a GPU", peak_tflops=50.0, memory_gb_per_s=400.0)


def test_prefill_is_bound_by_arithmetic() -> None:
    # 32 * 512 tokens through 12 * 4096^2 weights is 6.60e12 operations, and causal attention
    # (32 * 4 * 512 * 256.5 * 4096) 0.07e12 more: 0.133 s at 50 TFLOPS, where reading weights and KV takes 1.7 ms.
    assert layer_s(OPT_6_7B, GPU, 32, 512, 0) == pytest.approx(0.1333, rel=0.005)


def test_decode_is_bound_by_memory() -> None:
    # 403 MB of weights and 513 * 32 * 16 KiB = 269 MB of KV at 400 GB/s.
    assert layer_s(OPT_6_7B, GPU, 32, 1, 512) == pytest.approx((402.65e6 + 268.96e6) / 400e9, rel=0.001)


def test_half_the_efficiency_takes_twice_the_time() -> None:
    half = GpuConfig("half", 50.0, 400.0, efficiency=0.5)
    assert layer_s(OPT_6_7B, half, 32, 1, 512) == 2 * layer_s(OPT_6_7B, GPU, 32, 1, 512)
