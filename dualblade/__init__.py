"""DUAL-BLADE: an LLM's KV cache on NVMe, split between the page cache and a path around the kernel's file system.

The public names load on first use, so that `import dualblade.config` alone stays fast.
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "DualBladeCache": "dualblade.model.cache",
    "DualBladeError": "dualblade.errors",
    "KVGeometry": "dualblade.geometry",
    "KVStore": "dualblade.store",
    "RunConfig": "dualblade.config",
}

__all__ = list(_PUBLIC)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
