"""Replay: the KV traffic of a model without the model, by the same calls of the same store in the same order."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from dualblade.config.run import RunConfig
from dualblade.geometry import TensorId
from dualblade.model.roofline import compute_time
from dualblade.record.phases import PhaseTimes
from dualblade.store import KVStore

Progress = Callable[[str, int, int], None]


class Replay:
    """A run's prefill and decode phases. The constructor allocates K and V in place of those of a model.

    They are random values, `[T, B, H, D]`, the same for all tensors of one shape.
    """

    tokens: dict[str, Any] | None = None  # only a model run has them

    def __init__(self, store: KVStore, config: RunConfig) -> None:
        self._store = store
        self._iterations = config.iterations
        self.compute = compute_time(config)
        geometry = store.geometry
        dtype = getattr(torch, geometry.dtype)
        self._tokens = {
            shape: torch.rand(config.workload.prompt_tokens, *shape, device=store.device, dtype=dtype)
            for shape in {geometry.tensors[tensor].row_shape for tensor in geometry.tensors}
        }

    def run(self, progress: Progress) -> PhaseTimes:
        """Prefill, then decode; return when each phase and iteration began and ended."""
        times = PhaseTimes()
        self.prefill(progress)
        times.end()
        for iteration in range(1, self._iterations + 1):
            self.decode(iteration)
            times.end()
            progress("decode", iteration, self._iterations)
            times.begin()
        return times

    def prefill(self, progress: Progress) -> None:
        """Store the prompt layer by layer, each while the next one computes; returns when its path has all of it."""
        n_layers = self._store.geometry.n_layers
        for layer in range(n_layers):
            self._store.prefill(layer, *self._prompt(layer))
            _pass_time(self.compute.prefill_layer_s)
            progress("prefill", layer + 1, n_layers)
        self._store.synchronize()

    def decode(self, iteration: int) -> None:
        """Read every layer's tokens and add one, as a decode step of the model does."""
        self._store.begin("decode", iteration)
        for layer in range(self._store.geometry.n_layers):
            self._store.fetch(layer, room_tokens=1)
            k, v = self._prompt(layer)
            self._store.append(layer, k[:1], v[:1])
            _pass_time(self.compute.decode_layer_s)
        if iteration == self._iterations:
            self._store.synchronize()

    def _prompt(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        k, v = (self._tokens[self._store.geometry.tensors[TensorId(layer, kind)].row_shape] for kind in ("k", "v"))
        return k, v


def _pass_time(seconds: float) -> None:
    """Wait for as long as a layer's compute takes, without taking a core from the copy threads."""
    if seconds:
        time.sleep(seconds)
