"""`python -m dualblade` on what it cannot run: one sentence, and a result that says the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.checkout import CHECKOUT


def good(disk: Path) -> str:
    sizes = ("n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden_size", "intermediate_size", "mlp_matrices")
    return yaml.safe_dump(
        {
            "variant": {"name": "nvme_direct_only", "knob": 0, "overflow": "direct"},
            "model": {"name": "tiny", **dict.fromkeys(sizes, 2)},
            "workload": {"name": "short", "batch_size": 2, "prompt_tokens": 4, "generated_tokens": 2},
            "storage": {"name": "file", "directory": str(disk)},
            "device": {"name": "host"},
        }
    )


def write(run_dir: Path, config: str) -> None:
    (run_dir / "config.yaml").write_text(config)


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (
            lambda run, config: (run / "config.yaml").write_bytes(b"\xff\xfe\0"),
            "config.yaml is not text in UTF-8; write",
        ),
        (lambda run, config: (run / "config.yaml").mkdir(), "config.yaml cannot be read: Is a directory; give a run"),
        (
            lambda run, config: write(run, config.replace("generated_tokens: 2", "generated_tokens: 1")),
            "workload.generated_tokens=1 cannot be used; give 2 or more, since prefill yields the first",
        ),
        (
            lambda run, config: [(run / "kv_io.parquet").mkdir(), write(run, config)],
            "Is a directory",  # what the run has measured can be written nowhere
        ),
    ],
)
def test_a_run_that_cannot_be_ends_in_a_sentence_and_a_result(
    disk_path: Path, tmp_path: Path, prepare: Callable[[Path, str], object], said: str
) -> None:
    prepare(tmp_path, good(disk_path))
    done = subprocess.run(
        [sys.executable, "-m", "dualblade", str(tmp_path)], cwd=CHECKOUT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert said in done.stderr and done.stderr.startswith("dualblade: ") and done.stderr.count("\n") == 1
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["status"], f"dualblade: {result['error']}\n") == ("failed", done.stderr)
    assert list(disk_path.iterdir()) == []
