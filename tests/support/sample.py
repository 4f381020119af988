"""Make tests/data out of measured results: `python -m tests.support.sample RESULTS TARGET`.

Numbers stay as they were measured; of this machine's paths only the last part stays, and logs and raw traces are left
out.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from analysis.results.documents import read_run
from analysis.results.load import find_runs

COPIED = ("kv_io.parquet", "device_io.parquet", "io_layers.parquet")
SHORTENED = ("environment.json", "result.json")
KEPT_ROOTS = ("/dev/", "/sys/block/", "/proc/sys/")


def main(results_dir: Path, target: Path) -> None:
    """Copy every finished run."""
    for run_dir in find_runs(results_dir):
        read_run(run_dir)
        copy = target / run_dir.relative_to(results_dir)
        copy.mkdir(parents=True)
        for name in COPIED:
            if (run_dir / name).exists():
                shutil.copy(run_dir / name, copy)
        config = shortened(yaml.safe_load((run_dir / "config.yaml").read_text()))
        (copy / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        for name in SHORTENED:
            content = json.loads((run_dir / name).read_text())
            (copy / name).write_text(json.dumps(shortened(content), indent=1) + "\n")


def shortened(value: Any) -> Any:
    """The same document without absolute paths."""
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value]
    if isinstance(value, str) and value.startswith("/") and not value.startswith(KEPT_ROOTS):
        return f".../{PurePosixPath(value).name}"
    return value


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
