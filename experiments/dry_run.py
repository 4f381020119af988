"""What the points of a sweep would write where, as far as that can be told without running them."""

from __future__ import annotations

from collections.abc import Sequence

from dualblade import dry_run
from dualblade.errors import DualBladeError
from experiments.environment import available_bytes
from experiments.kernel import CACHE
from experiments.point import Point
from experiments.sweep import compose_points

FLAG = "--dry-run"


def report(overrides: Sequence[str]) -> int:
    """Print each point's writes; returns 1 if any point would be refused."""
    refused = 0
    for config in compose_points([override for override in overrides if not override.startswith("-")]):
        try:
            point = Point.from_config(config)
            if point.guest:
                print(f"{point.label}: all to the emulated SSD, a file in {CACHE} that goes with its guest")
                continue
            budget_bytes = available_bytes() if point.budget_bytes is None else max(0, point.budget_bytes)
            print("\n".join(dry_run.describe(point.run, budget_bytes)))
        except DualBladeError as error:
            refused += 1
            print(f"refused: {error}")
    print("nothing was written")
    return int(bool(refused))
