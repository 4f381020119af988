"""Pack measured results into one archive: `python -m tests.support.sample TARGET.tar.xz RESULTS...`.

Numbers stay as they were measured. Of this machine's paths only the last part stays; logs and raw traces are left out.
The same runs give the same bytes. `RESULTS` are folders or archives; of two runs of one name the later is taken.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from analysis.results.documents import read_run
from analysis.results.load import find_runs

COPIED = ("kv_io.parquet", "device_io.parquet", "io_layers.parquet")
SHORTENED = ("environment.json", "result.json")
KEPT_ROOTS = ("/dev/", "/sys/block/", "/proc/sys/")


def main(target: Path, *results: Path) -> None:
    """Write every finished run into a new archive, which then replaces `target`."""
    runs = {name: folder for place in results for name, folder in find_runs(place).items()}
    partial = target.with_name(f".{target.name}.partial")
    with tarfile.open(partial, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as archive:
        for name, folder in sorted(runs.items()):
            read_run(folder)
            for file, content in files_of(folder):
                entry = tarfile.TarInfo(f"{name}/{file}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    partial.replace(target)


def files_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a run that the archive takes, with their content."""
    config = shortened(yaml.safe_load((folder / "config.yaml").read_text()))
    yield "config.yaml", yaml.safe_dump(config, sort_keys=False).encode()
    for name in SHORTENED:
        content = shortened(json.loads((folder / name).read_text()))
        yield name, (json.dumps(content, indent=1) + "\n").encode()
    yield from ((name, (folder / name).read_bytes()) for name in COPIED if (folder / name).exists())


def shortened(value: Any) -> Any:
    """Return the same document without absolute paths."""
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value]
    if isinstance(value, str) and value.startswith("/") and not value.startswith(KEPT_ROOTS):
        return f".../{PurePosixPath(value).name}"
    return value


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
