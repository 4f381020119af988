"""Intake: whether what a caller brings to a store, or asks of it, is what the store was made for."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dualblade.config.sections import require
from dualblade.errors import ConfigurationError
from dualblade.geometry import KVGeometry, TensorId

NamedTokens = tuple[TensorId, torch.Tensor]


def check_layer(geometry: KVGeometry, layer: int) -> None:
    """Refuse a layer that there is not.

    Raises:
        ConfigurationError: with those that there are.
    """
    if not 0 <= layer < geometry.n_layers:
        raise ConfigurationError(
            f"layer={layer} is none of the cache's; give one of the layers 0 to {geometry.n_layers - 1}"
        )


def next_rows(geometry: KVGeometry, length_tokens: int, n_tokens: int) -> range:
    """Rows that a layer's next tokens will take, behind the `length_tokens` that it has.

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


def check_fetch(geometry: KVGeometry, layer: int, lengths_tokens: Sequence[int], room_tokens: int) -> None:
    """Refuse to fetch what is not there, or with room for what cannot be added; every layer has its length.

    Raises:
        ConfigurationError: no such layer, no tokens, or more than the cache was made for.
    """
    check_layer(geometry, layer)
    require(room_tokens >= 0, f"room_tokens={room_tokens}", "0 or more")
    next_rows(geometry, lengths_tokens[layer], room_tokens)
    if not geometry.visible_rows(layer, lengths_tokens[layer]):
        raise ConfigurationError(f"layer {layer} has no tokens to fetch; append some first")


def check_tokens(
    geometry: KVGeometry, device: torch.device, layer: int, k: torch.Tensor, v: torch.Tensor
) -> tuple[NamedTokens, NamedTokens]:
    """K and V of a layer's next tokens, `[T, B, H, D]` each, with their names.

    Raises:
        ConfigurationError: they are not what the store was made for, do not go together, or are none.
    """
    check_layer(geometry, layer)
    tokens = (TensorId(layer, "k"), k), (TensorId(layer, "v"), v)
    for tensor, rows in tokens:
        check_memory(geometry, device, tensor, rows)
        _check_shape(geometry, tensor, rows)
    if k.shape[0] != v.shape[0]:
        raise ConfigurationError(
            f"layer {layer} comes with {len(k)} tokens of K and {len(v)} of V; give as many of both"
        )
    return tokens


def check_memory(geometry: KVGeometry, device: torch.device, tensor: TensorId, rows: torch.Tensor) -> None:
    """Refuse tokens of another dtype, or on another device; "cuda" without a number means any.

    Raises:
        ConfigurationError: with both.
    """
    if rows.dtype is not getattr(torch, geometry.dtype) or not _same_device(rows.device, device):
        dtype = str(rows.dtype).removeprefix("torch.")
        raise ConfigurationError(
            f"{tensor} comes as {dtype} on {rows.device} and the cache holds {geometry.dtype} on {device}; "
            "keep all layers in one dtype on one device, and make a new cache after changing it"
        )


def _same_device(given: torch.device, expected: torch.device) -> bool:
    return given == expected or (given.type == expected.type and expected.index is None)


def _check_shape(geometry: KVGeometry, tensor: TensorId, rows: torch.Tensor) -> None:
    expected, shape = geometry.tensors[tensor].row_shape, rows.shape
    if shape[1:] != expected or not shape[0]:
        raise ConfigurationError(
            f"{tensor} comes as {list(shape)}; give [T, {', '.join(map(str, expected))}], T tokens, one or more"
        )
