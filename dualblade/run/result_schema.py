"""result.json: its version, and the form of a failed run's result."""

from __future__ import annotations

from typing import Any

SCHEMA_VERSION = 1
IO_PATHS_KIND = "io_paths"  # `kind` of a result that fio measured on an I/O path, without the engine


def failed_result(variant: str | None, error: str) -> dict[str, Any]:
    """The result of a run that failed, with the reason as one sentence."""
    return {"schema": SCHEMA_VERSION, "status": "failed", "error": error, "variant": variant}
