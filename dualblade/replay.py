"""Replay: the KV traffic of a model without the model, in the same sequence of calls on the same store."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from dualblade.geometry import KVGeometry, TensorId
from dualblade.pipeline import Moment
from dualblade.roofline import ComputeTime
from dualblade.store import KVStore

Progress = Callable[[str, int, int], None]


def replay(
    store: KVStore, prompt_tokens: int, iterations: int, compute: ComputeTime, progress: Progress
) -> tuple[float, list[float]]:
    """Prefill a prompt, then decode: (prefill seconds, seconds of each decode iteration).

    Prefill ends when every token is on its path: in the page cache, or on the device. The last iteration ends so too.
    """
    tokens = _Tokens(store.geometry, prompt_tokens, store.device)
    prefill_s = prefill(store, tokens, compute, progress)
    decode_s = [decode(store, tokens, i, iterations, compute, progress) for i in range(1, iterations + 1)]
    return prefill_s, decode_s


def prefill(store: KVStore, tokens: _Tokens, compute: ComputeTime, progress: Progress) -> float:
    """Write the whole prompt, layer after layer, while the next layer computes."""
    n_layers = store.geometry.n_layers
    start = time.perf_counter()
    for layer in range(n_layers):
        store.prefill(layer, *tokens.prompt(layer))
        _compute(compute.prefill_layer_s)
        progress("prefill", layer + 1, n_layers)
    store.synchronize()
    return time.perf_counter() - start


def decode(
    store: KVStore, tokens: _Tokens, iteration: int, iterations: int, compute: ComputeTime, progress: Progress
) -> float:
    """Read every layer's tokens and add one, as one decode step of the model does."""
    store.moment = Moment("decode", iteration)
    start = time.perf_counter()
    for layer in range(store.geometry.n_layers):
        store.fetch(layer, room_tokens=1)
        store.append(layer, *tokens.row(layer))
        _compute(compute.decode_layer_s)
    if iteration == iterations:
        store.synchronize()
    elapsed_s = time.perf_counter() - start
    progress("decode", iteration, iterations)
    return elapsed_s


class _Tokens:
    """Stand-ins for what a model would produce: random values, `[T, B, H, D]`, the same for layers of one shape."""

    def __init__(self, geometry: KVGeometry, prompt_tokens: int, device: torch.device) -> None:
        self._geometry = geometry
        dtype = getattr(torch, geometry.dtype)
        shapes = {geometry.row_shape(tensor) for tensor in geometry.tensors()}
        self._values = {
            shape: torch.rand(prompt_tokens, *shape, device=device, dtype=torch.float32).to(dtype)
            for shape in sorted(shapes)
        }

    def prompt(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._of(TensorId(layer, "k")), self._of(TensorId(layer, "v"))

    def row(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        k, v = self.prompt(layer)
        return k[:1], v[:1]

    def _of(self, tensor: TensorId) -> torch.Tensor:
        return self._values[self._geometry.row_shape(tensor)]


def _compute(seconds: float) -> None:
    """Stand in for a layer's compute: the stated time passes, without taking a core from the copy threads."""
    if seconds:
        time.sleep(seconds)
