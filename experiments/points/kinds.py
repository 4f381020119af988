"""What can be measured: a run of the engine, or an I/O path by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from experiments.points.io_point import IoPoint
from experiments.points.point import Point

AnyPoint: TypeAlias = Point | IoPoint


def from_config(config: Mapping[str, Any]) -> AnyPoint:
    """The point that a composed configuration describes: with a section `io` it is an I/O path.

    Raises:
        ConfigurationError: a value that no run can use.
    """
    return IoPoint.from_config(config) if config.get("io") else Point.from_config(config)
