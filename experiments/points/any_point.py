"""AnyPoint: a run of the engine, or an I/O path measured by fio alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from experiments.points.io_point import IoPoint
from experiments.points.point import Point

AnyPoint: TypeAlias = Point | IoPoint


def from_config(config: Mapping[str, Any]) -> AnyPoint:
    """Return the point of a composed configuration; one with a section `io` measures an I/O path.

    Raises:
        ConfigurationError: a value cannot be used.
    """
    return IoPoint.from_config(config) if config.get("io") else Point.from_config(config)
