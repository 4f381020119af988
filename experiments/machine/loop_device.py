"""A loop device over a file of ours: a block device to measure where no disk may be written to."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from dualblade.errors import StorageError
from experiments.machine.journal import Journal

SECTOR_BYTES = 4096


@contextlib.contextmanager
def attached(file: Path, journal: Journal) -> Iterator[Path]:
    """Yield a device over all of `file`, with direct I/O to the file; it is detached when the block is left.

    Raises:
        StorageError: no loop device can be had, or its direct I/O is not in force.
    """
    with journal.undo("detach_loop", str(file.absolute())):
        command = ["losetup", "--find", "--show", "--direct-io=on", f"--sector-size={SECTOR_BYTES}", str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = str(getattr(error, "stderr", "") or error).strip()
            raise StorageError(
                f"no loop device can be made over {file} ({said}); run as root, or name a block device of your own "
                "(storage=block)"
            ) from None
        device = Path(done.stdout.strip())
        if (Path("/sys/block") / device.name / "loop/dio").read_text().strip() != "1":
            raise StorageError(f"{device} does not use direct I/O on {file}; choose another storage.directory")
        yield device
