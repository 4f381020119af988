"""What can be wrong with a trace."""

from __future__ import annotations

from dualblade.errors import DualBladeError


class TraceError(DualBladeError):
    """A trace cannot be taken, read or used."""
