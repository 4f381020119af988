"""The harness's own errors, beside those of the engine."""

from __future__ import annotations

from dualblade.errors import DualBladeError


class MachineError(DualBladeError):
    """This machine can measure no point in its present state: the sweep stops."""


class RunError(DualBladeError):
    """One run gave no result: its point is recorded as failed and the sweep goes on."""
