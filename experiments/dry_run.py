"""What the points of a sweep would write where, as far as that can be told without running them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from dualblade.errors import DualBladeError
from dualblade.run import dry_run
from experiments.guest.kernel import CACHE
from experiments.io_paths import io_dry_run
from experiments.machine import scratch
from experiments.machine.environment import available_bytes
from experiments.points.io_point import IoPoint
from experiments.points.kinds import AnyPoint, from_config
from experiments.points.point import Settings
from experiments.points.sweep import compose_points

FLAG = "--dry-run"


def report(overrides: Sequence[str]) -> int:
    """Print each point's writes; returns 1 if any point would be refused."""
    refused = 0
    for config in compose_points([override for override in overrides if not override.startswith("-")]):
        try:
            Settings.from_config(config)
            print("\n".join(_lines(from_config(config))))
        except DualBladeError as error:
            refused += 1
            print(f"refused: {error}")
    print("nothing was written")
    return int(bool(refused))


def _lines(point: AnyPoint) -> Iterable[str]:
    if point.guest:
        return [f"{point.label}: all to the emulated SSD, a file in {CACHE} that goes with its guest"]
    scratch.check(Path(point.storage.directory), point.file_bytes)
    if isinstance(point, IoPoint):
        return io_dry_run.describe(point)
    budget_bytes = available_bytes() if point.budget_bytes is None else max(0, point.budget_bytes)
    return dry_run.describe(point.run, budget_bytes)
