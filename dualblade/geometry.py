"""KV shapes: layers, heads, head size, dtype, batch and capacity -> bytes, rows and offsets. Pure arithmetic.

A tensor is token-major, `[S, B, H_kv, D]`: one row holds one token of every sequence in the batch, so a prefill is one
long write and a decoded token is one contiguous row (paper, section "Workload").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
        """Position in the order in which tensors are bound to LBAs: K0, V0, K1, V1, ..."""
        return 2 * self.layer + (self.kind == "v")

    def __str__(self) -> str:
        return f"layer {self.layer} {self.kind.upper()}"


@dataclass(frozen=True)
class LayerShape:
    """Heads of one layer's cache. K and V may differ in head size; a sliding-window layer reads its last tokens only.

    `window_tokens` is how many past tokens a query may see, or None for all of them.
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
        """The common case: every layer alike, K and V alike."""
        layer = LayerShape(n_kv_heads, head_dim, head_dim)
        return cls((layer,) * n_layers, batch_size, capacity_tokens, dtype)

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @property
    def dtype_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    def tensors(self) -> Iterator[TensorId]:
        """All tensors in LBA-bind order."""
        for layer in range(self.n_layers):
            yield TensorId(layer, "k")
            yield TensorId(layer, "v")

    def row_shape(self, tensor: TensorId) -> tuple[int, int, int]:
        """`[B, H_kv, D]` of one token row."""
        layer = self.layers[tensor.layer]
        return self.batch_size, layer.n_kv_heads, layer.head_dim(tensor.kind)

    def row_bytes(self, tensor: TensorId) -> int:
        """Bytes of one token row, all sequences of the batch."""
        batch, heads, dim = self.row_shape(tensor)
        return batch * heads * dim * self.dtype_bytes

    def tensor_bytes(self, tensor: TensorId) -> int:
        """Bytes of the tensor at full capacity."""
        return self.capacity_tokens * self.row_bytes(tensor)

    def kpu_bytes(self, layer: int) -> int:
        """Bytes of one KV placement unit, the (K, V) pair of a layer (paper, "KPU")."""
        return self.tensor_bytes(TensorId(layer, "k")) + self.tensor_bytes(TensorId(layer, "v"))

    @property
    def largest_tensor_bytes(self) -> int:
        """M_pin of the paper, before rounding to pages: what one copy thread's pinned buffer must hold."""
        return max(self.tensor_bytes(tensor) for tensor in self.tensors())

    @property
    def working_set_bytes(self) -> int:
        """Bytes of every tensor at full capacity."""
        return sum(self.kpu_bytes(layer) for layer in range(self.n_layers))

    def visible_rows(self, layer: int, length_tokens: int) -> range:
        """Rows that a query at position `length_tokens` has to read from this layer."""
        window = self.layers[layer].window_tokens
        first = 0 if window is None else max(0, length_tokens - window)
        return range(first, length_tokens)
