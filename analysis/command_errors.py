"""What can go wrong at a command of this package, as one sentence: our own errors, and what the system refuses."""

from __future__ import annotations

from dualblade.errors import DualBladeError
from traces.errors import TraceError

MISTAKES = (DualBladeError, TraceError, OSError)


def sentence(error: Exception) -> str:
    """Our own errors have their cure; the system's are about the folders that were named."""
    if not isinstance(error, OSError):
        return str(error)
    what = " ".join((error.strerror or str(error)).split())
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{what}; name folders that can be read and written, with room left"
