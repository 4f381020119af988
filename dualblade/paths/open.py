"""The two ways between a store's buffers and storage, by name."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from dualblade.config.storage import StorageConfig
from dualblade.geometry import KVGeometry
from dualblade.paths.base import Path
from dualblade.paths.direct import NvmeDirect
from dualblade.paths.page_cache import PageCache
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.read_ahead import ReadAhead
from dualblade.plan.residency import Plan


def open_paths(
    plan: Plan,
    geometry: KVGeometry,
    storage: StorageConfig,
    buffers: Sequence[PinnedBuffer],
    ahead: ReadAhead | None,
) -> dict[str, Path]:
    """The paths that a plan takes, by name; all of them or none.

    Raises:
        StorageError: the space, direct I/O or the device is not there.
    """
    paths: dict[str, Path] = {}
    with contextlib.ExitStack() as undo:
        for name in sorted(set(plan.layers)):
            layers = [layer for layer, path in enumerate(plan.layers) if path == name]
            paths[name] = _open_path(name, geometry, layers, storage, buffers, ahead)
            undo.callback(paths[name].close)
        undo.pop_all()
    return paths


def _open_path(
    name: str,
    geometry: KVGeometry,
    layers: Sequence[int],
    storage: StorageConfig,
    buffers: Sequence[PinnedBuffer],
    ahead: ReadAhead | None,
) -> Path:
    """The path of these layers, for threads with these buffers, and for `ahead` as one more."""
    if name != "direct":
        return PageCache(geometry, layers, storage, evict=name == "page_cache_evict")
    depths = [storage.queue_depth] * len(buffers)
    if ahead:
        depths.append(ahead.depth(storage.queue_depth))
    direct = NvmeDirect(geometry, layers, storage, depths)
    for thread, buffer in enumerate(buffers):
        direct.register(thread, buffer, buffer.size_bytes)
    if ahead:
        direct.register(len(buffers), ahead.buffer, ahead.stride_bytes(depths[-1]))
    return direct
