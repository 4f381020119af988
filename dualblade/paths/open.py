"""Opening the paths that a plan takes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from dualblade.config.storage import StorageConfig
from dualblade.geometry import KVGeometry
from dualblade.paths.base import KVPath, Worker
from dualblade.paths.direct import NvmeDirect
from dualblade.paths.page_cache import PageCache
from dualblade.plan.residency import Plan


def open_paths(
    plan: Plan, geometry: KVGeometry, storage: StorageConfig, workers: Sequence[Worker]
) -> dict[str, KVPath]:
    """Open the paths of a plan, by name, for these workers; all of them or none.

    Raises:
        StorageError: there is no space, no direct I/O or no such device.
    """
    paths: dict[str, KVPath] = {}
    with contextlib.ExitStack() as undo:
        for name in sorted(set(plan.layers)):
            layers = [layer for layer, path in enumerate(plan.layers) if path == name]
            if name == "direct":
                paths[name] = NvmeDirect(geometry, layers, storage, workers)
            else:
                paths[name] = PageCache(geometry, layers, storage, evict=name == "page_cache_evict")
            undo.callback(paths[name].close)
        undo.pop_all()
    return paths
