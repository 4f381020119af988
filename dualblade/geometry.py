"""KV shapes: layers, heads, head size, dtype, batch and capacity -> bytes, rows and offsets. Pure arithmetic.

A tensor is token-major, `[S, B, H_kv, D]`: one row holds one token of every sequence in the batch, so a prefill is one
long write and a decoded token is one contiguous row (paper, section "Workload").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from dualblade.errors import ConfigurationError
from dualblade.units import END_BYTE

Kind = Literal["k", "v"]

DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


class TensorId(NamedTuple):
    """The K or the V tensor of one layer."""

    layer: int
    kind: Kind

    @property
    def order(self) -> int:
        """Position in the order of LBA bind: K0, V0, K1, V1, ..."""
        return 2 * self.layer + (self.kind == "v")

    def __str__(self) -> str:
        return f"layer {self.layer} {self.kind.upper()}"


@dataclass(frozen=True)
class TensorLayout:
    """Shape and size of one tensor: a row is `[B, H_kv, D]`, one token of every sequence in the batch."""

    row_shape: tuple[int, int, int]
    row_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class LayerShape:
    """Heads of one layer's cache; K and V may differ in head size.

    `window_tokens` is how many past tokens a query of a sliding-window layer may see; None: all of them.
    """

    n_kv_heads: int
    key_dim: int
    value_dim: int
    window_tokens: int | None = None

    def head_dim(self, kind: Kind) -> int:
        return self.key_dim if kind == "k" else self.value_dim


@dataclass(frozen=True)
class KVGeometry:
    """Shape of a whole KV cache: `layers` times (K, V), each `[capacity_tokens, batch_size, n_kv_heads, head_dim]`."""

    layers: tuple[LayerShape, ...]
    batch_size: int
    capacity_tokens: int
    dtype: str = "float16"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise ConfigurationError(f"dtype {self.dtype!r} has no KV layout; use one of {', '.join(DTYPE_BYTES)}")
        heads = [size for layer in self.layers for size in (layer.n_kv_heads, layer.key_dim, layer.value_dim)]
        sizes = {
            "layers": len(self.layers),
            "tokens": self.capacity_tokens,
            "sequences": self.batch_size,
            "heads or channels": min(heads, default=1),
        }
        nothing = [f"{size} {name}" for name, size in sizes.items() if size < 1]
        if nothing:
            raise ConfigurationError(
                f"a KV cache of {' and '.join(nothing)} holds nothing; check the model's and the workload's sizes"
            )
        if self.working_set_bytes > END_BYTE:
            raise ConfigurationError(
                f"a KV cache of {self.working_set_bytes:,} bytes is more than any storage takes; "
                "check the model's and the workload's sizes"
            )

    @classmethod
    def uniform(
        cls,
        n_layers: int,
        n_kv_heads: int,
        head_dim: int,
        *,
        batch_size: int,
        capacity_tokens: int,
        dtype: str = "float16",
    ) -> KVGeometry:
        """Build a cache whose layers all have one shape, the same for K and V."""
        layer = LayerShape(n_kv_heads, head_dim, head_dim)
        return cls((layer,) * n_layers, batch_size, capacity_tokens, dtype)

    @cached_property
    def n_layers(self) -> int:
        return len(self.layers)

    @cached_property
    def tensors(self) -> dict[TensorId, TensorLayout]:
        """Layouts of all tensors, in the order in which they are bound to LBAs."""
        return {
            TensorId(number, kind): self._layout(layer, kind)
            for number, layer in enumerate(self.layers)
            for kind in ("k", "v")
        }

    def _layout(self, layer: LayerShape, kind: Kind) -> TensorLayout:
        row_shape = self.batch_size, layer.n_kv_heads, layer.head_dim(kind)
        row_bytes = math.prod(row_shape) * DTYPE_BYTES[self.dtype]
        return TensorLayout(row_shape, row_bytes, self.capacity_tokens * row_bytes)

    @cached_property
    def kpu_bytes(self) -> list[int]:
        """Bytes of each layer's KV placement unit, its (K, V) pair (paper, "KPU")."""
        sizes_bytes = [layout.size_bytes for layout in self.tensors.values()]
        return [k_bytes + v_bytes for k_bytes, v_bytes in zip(sizes_bytes[::2], sizes_bytes[1::2], strict=True)]

    @property
    def largest_tensor_bytes(self) -> int:
        """M_pin of the paper, before rounding to pages: the size of one copy thread's pinned buffer."""
        return max(layout.size_bytes for layout in self.tensors.values())

    @property
    def working_set_bytes(self) -> int:
        """Bytes of all tensors at full capacity."""
        return sum(self.kpu_bytes)

    def visible_rows(self, layer: int, length_tokens: int) -> range:
        """Rows of this layer that a query at position `length_tokens` reads."""
        window = self.layers[layer].window_tokens
        first = 0 if window is None else max(0, length_tokens - window)
        return range(first, length_tokens)
