"""The library holder has in memory what an engine maps: its pages are then not charged to the runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.processes.engine import Engine, running
from tests.support.tiny_models import save_tiny_llama, tiny_llama_run

# What may be mapped and not be held: a run's own files, and small parts of the standard library.
MAX_LEFT_BYTES = 2 << 20


@contextlib.contextmanager
def ready(arguments: list[str], log: Path) -> Iterator[Engine]:
    with running(arguments, None, log, deadline_s=300) as engine:
        assert engine.wait_for("ready") is not None, log.read_text()
        yield engine


def mapped_libraries(engine: Engine) -> dict[Path, int]:
    """Sizes of the files that a process executes code from."""
    lines = (line.split(maxsplit=5) for line in Path(f"/proc/{engine._process.pid}/maps").read_text().splitlines())
    paths = {Path(fields[5]) for fields in lines if len(fields) == 6 and fields[5].startswith("/") and "x" in fields[1]}
    return {path: os.stat(path).st_size for path in paths if path.exists()}


@pytest.mark.parametrize("source", ["replay", "model"])
def test_the_holder_maps_what_a_run_maps(source: str, disk_path: Path, tmp_path: Path) -> None:
    weights = save_tiny_llama(tmp_path / "tiny_llama")
    (weights / "prompts.txt").write_text("A page cache keeps\n")
    config: dict[str, Any] = tiny_llama_run(weights, disk_path, source=source)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with ready(["--hold", source], tmp_path / "holder.log") as holder:
        held = mapped_libraries(holder)
    with ready([str(tmp_path), "--handshake"], tmp_path / "engine.log") as engine:
        used = mapped_libraries(engine)
    left = {path: size for path, size in used.items() if path not in held}
    assert any("torch" in path.name for path in held)
    assert sum(left.values()) < MAX_LEFT_BYTES, left
