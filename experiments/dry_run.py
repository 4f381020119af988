"""`--dry-run`: prints what each point of a sweep would write and where, and writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dualblade.errors import DualBladeError
from dualblade.run.planned_writes import writes_of_run
from experiments.guest.kernel import CACHE
from experiments.io_paths import io_dry_run
from experiments.machine import scratch
from experiments.machine.environment import available_bytes
from experiments.points.any_point import AnyPoint, from_config
from experiments.points.io_point import IoPoint
from experiments.points.point import Settings


def print_writes(configs: Iterable[Mapping[str, Any]]) -> int:
    """Print the writes of each composed configuration; returns 1 if any point would be refused."""
    refused = 0
    for config in configs:
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
        return [f"{point.label}: writes only to the emulated SSD, a file in {CACHE} that is removed with the guest"]
    scratch.check(Path(point.storage.directory), point.file_bytes)
    if isinstance(point, IoPoint):
        return io_dry_run.describe(point)
    budget_bytes = available_bytes() if point.budget_bytes is None else max(0, point.budget_bytes)
    return writes_of_run(point.run, budget_bytes)
