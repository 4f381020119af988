"""Checks of a caller's arguments: do they fit the store?"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dualblade.errors import ConfigurationError
from dualblade.geometry import KVGeometry, TensorId


def check_layer(geometry: KVGeometry, layer: int) -> None:
    """Refuse a layer that the cache does not have.

    Raises:
        ConfigurationError: with the layers that it has.
    """
    if not 0 <= layer < geometry.n_layers:
        raise ConfigurationError(
            f"layer={layer} is none of the cache's; give one of the layers 0 to {geometry.n_layers - 1}"
        )


def next_rows(geometry: KVGeometry, length_tokens: int, n_tokens: int) -> range:
    """Return the rows of a layer's next tokens, after the `length_tokens` that it has.

    Raises:
        ConfigurationError: more tokens than the cache was made for.
    """
    rows = range(length_tokens, length_tokens + n_tokens)
    if rows.stop > geometry.capacity_tokens:
        raise ConfigurationError(
            f"the cache holds {geometry.capacity_tokens} tokens and {rows.stop} are needed; "
            "make it with a larger max_tokens"
        )
    return rows


def check_fetch(geometry: KVGeometry, layer: int, lengths_tokens: Sequence[int], room_tokens: int) -> range:
    """Return the rows that a fetch reads; refuse one without tokens, or with more room than the cache has.

    Raises:
        ConfigurationError: no such layer, no tokens, or more than the cache was made for.
    """
    check_layer(geometry, layer)
    if room_tokens < 0:
        raise ConfigurationError(f"room_tokens={room_tokens} cannot be used; give 0 or more")
    next_rows(geometry, lengths_tokens[layer], room_tokens)
    rows = geometry.visible_rows(layer, lengths_tokens[layer])
    if not rows:
        raise ConfigurationError(f"layer {layer} has no tokens to fetch; append some first")
    return rows


def check_append(
    geometry: KVGeometry,
    device: torch.device,
    layer: int,
    lengths_tokens: Sequence[int],
    k: torch.Tensor,
    v: torch.Tensor,
) -> range:
    """Return the rows of a layer's next tokens, K and V `[T, B, H, D]` each.

    Raises:
        ConfigurationError: they do not fit the store, differ in length, are empty, or are more than there is room for.
    """
    check_layer(geometry, layer)
    for tensor, rows in ((TensorId(layer, "k"), k), (TensorId(layer, "v"), v)):
        check_memory(geometry, device, tensor, rows)
        expected, shape = geometry.tensors[tensor].row_shape, rows.shape
        if shape[1:] != expected or not shape[0]:
            raise ConfigurationError(
                f"{tensor} comes as {list(shape)}; give [T, {', '.join(map(str, expected))}], T tokens, one or more"
            )
    if len(k) != len(v):
        raise ConfigurationError(
            f"layer {layer} comes with {len(k)} tokens of K and {len(v)} of V; give as many of both"
        )
    return next_rows(geometry, lengths_tokens[layer], len(k))


def check_memory(geometry: KVGeometry, device: torch.device, tensor: TensorId, rows: torch.Tensor) -> None:
    """Refuse tokens of another dtype or on another device; "cuda" without a number means any.

    Raises:
        ConfigurationError: with both dtypes and devices.
    """
    on_device = rows.device == device or (rows.device.type == device.type and device.index is None)
    if rows.dtype is not getattr(torch, geometry.dtype) or not on_device:
        dtype = str(rows.dtype).removeprefix("torch.")
        raise ConfigurationError(
            f"{tensor} comes as {dtype} on {rows.device} and the cache holds {geometry.dtype} on {device}; "
            "keep all layers in one dtype on one device, and make a new cache after changing it"
        )
