"""The harness's own errors, beside those of the engine."""

from __future__ import annotations

from dualblade.errors import DualBladeError


class MachineError(DualBladeError):
    """This machine, as it is, can measure no point at all: the sweep stops."""


class RunError(DualBladeError):
    """One run did not give a result: its point is recorded as failed and the sweep goes on."""
