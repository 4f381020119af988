"""A file as a block device, for tests that write raw."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def on_loop(image: Path, sector_bytes: int = 512) -> Iterator[str]:
    """A loop device over the file, detached afterwards; skips the test where none can be made."""
    losetup = ["losetup", "--sector-size", str(sector_bytes), "--find", "--show", str(image)]
    made = subprocess.run(losetup, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no loop device can be made here: {made.stderr.strip()}")
    device = made.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
