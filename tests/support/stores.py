"""Helpers for tests of KVStore: storage, random rows and links."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from dualblade.config.device import LinkPace
from dualblade.config.storage import StorageConfig
from dualblade.geometry import KVGeometry, TensorId
from dualblade.pipeline.link import HostLink, Link, PacedLink, SharedLink
from dualblade.store import KVStore


def storage(directory: Path, **changes: object) -> StorageConfig:
    return dataclasses.replace(StorageConfig("test", str(directory), checksum=True), **changes)  # type: ignore[arg-type]


def rows(geometry: KVGeometry, layer: int, n_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = getattr(torch, geometry.dtype)
    k, v = (torch.rand(n_tokens, *geometry.tensors[TensorId(layer, kind)].row_shape).to(dtype) for kind in ("k", "v"))  # type: ignore[arg-type]
    return k, v


def filled(store: KVStore, n_tokens: int = 8) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """Fill the store with random tokens; return K and V of each layer."""
    kept = {layer: rows(store.geometry, layer, n_tokens) for layer in range(store.geometry.n_layers)}
    for layer, new in kept.items():
        store.prefill(layer, *new)
    store.synchronize()
    return kept


LINKS: dict[str, Link] = {
    "host": HostLink(),
    "shared": SharedLink(),
    "paced": PacedLink(LinkPace(gb_per_s=100.0, source="a test")),
}
