"""Files that are complete or not there: written under a temporary name, then renamed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def replacing(path: Path, partial: Path | None = None) -> Iterator[Path]:
    """Yield a temporary name to write to; it becomes `path` at the end of the block, and is removed after an error."""
    partial = partial or path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(text: str, path: Path) -> None:
    """Write a text file, complete or not at all."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(content: Any, path: Path) -> None:
    """Write a JSON file, complete or not at all."""
    write_text(json.dumps(content, indent=1) + "\n", path)


def write_durable(text: str, path: Path, partial: Path | None = None) -> None:
    """Write a text file that is on disk when this returns, content and name; a power failure leaves it whole."""
    with replacing(path, partial) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Write a folder's names to disk: a file's fsync does not (fsync(2), notes)."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def last_line(path: Path) -> str:
    """The last line of a program's log; empty if the log is."""
    return path.read_text(errors="replace").strip().rpartition("\n")[2]
