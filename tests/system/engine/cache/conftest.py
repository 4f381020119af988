"""A cache of a model on a real disk, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dualblade import DualBladeCache
from dualblade.geometry import KVGeometry
from dualblade.model.layers import model_layers
from tests.support.generating import MakeCache


@pytest.fixture
def make_cache(disk_path: Path) -> MakeCache:
    """A cache with checksums, and a budget for about half of its layers."""

    def make(model: Any, batch_size: int, variant: str = "dual_blade", max_tokens: int = 40) -> DualBladeCache:
        shapes = tuple(layer.shape for layer in model_layers(model.config) if layer.shape)
        geometry = KVGeometry(shapes, batch_size, max_tokens, str(model.dtype).removeprefix("torch."))
        passing_bytes = 2 * geometry.largest_tensor_bytes if variant == "cachepolicy_only" else 0
        budget_bytes = int(0.6 * geometry.working_set_bytes + passing_bytes / 0.95)
        return DualBladeCache(model.config, batch_size, max_tokens, disk_path, variant, budget_bytes, checksum=True)

    return make
