"""The list of changes to undo, written before each change: the next harness undoes what a killed one left."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from dualblade.config.storage import StorageConfig
from dualblade.linux.files import write_durable
from dualblade.targets import claim
from experiments.errors import MachineError
from experiments.machine import cgroup

STATE_VARIABLE = "DUALBLADE_STATE_DIR"


def remove_tree(path: str) -> None:
    """Remove a folder with all that is in it, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def write_value(path: str, value: str) -> None:
    """Restore a kernel setting, if the device is still there."""
    with contextlib.suppress(FileNotFoundError):
        Path(path).write_text(value)


def reclaim_blocks(storage: dict[str, Any]) -> None:
    """Deallocate the blocks that a killed engine left on its NVMe namespace; the record stays until that works."""
    claim.reclaim(StorageConfig(**storage))


def detach_loop(file: str) -> None:
    """Detach the loop devices over a file of ours."""
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # detached in the meantime
            if backing.read_text().strip() == file:
                subprocess.run(["losetup", "--detach", f"/dev/{backing.parts[-3]}"], check=True, capture_output=True)


# By name, since the journal outlives the process. Each may be done twice, and of something never made.
ACTIONS: dict[str, Callable[..., None]] = {
    "remove_tree": remove_tree,
    "write_value": write_value,
    "destroy_cgroup": cgroup.destroy,
    "reclaim_blocks": reclaim_blocks,
    "detach_loop": detach_loop,
}


def state_dir() -> Path:
    """Return the user's folder for lock and journal; it survives a restart, as unfinished results do.

    Raises:
        MachineError: somebody else made it; its journal must not be followed.
    """
    path = Path(os.environ.get(STATE_VARIABLE, f"/var/tmp/dualblade-{os.geteuid()}"))
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.geteuid():
        raise MachineError(f"{path} belongs to another user; remove it, or set {STATE_VARIABLE} to a folder of yours")
    return path


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the machine for one harness. The kernel releases the lock when the process ends, however it ends.

    Raises:
        MachineError: another harness is measuring.
    """
    with open(path, "a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MachineError(
                f"another harness, process {_holder(lock)}, is measuring on this machine and two would disturb each "
                "other; wait until it has ended"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


class Journal:
    """A stack of undo actions, rewritten whole at every change."""

    def __init__(self, path: Path) -> None:
        """Raises:
        MachineError: what a killed harness left cannot be read.
        """
        self._path = path
        self._entries = _read(path)

    @contextlib.contextmanager
    def undo(self, action: str, *arguments: Any) -> Iterator[None]:
        """Call `action(*arguments)` when the block is left; if the harness dies before, the next harness does it."""
        depth = len(self._entries)
        self._entries.append([action, *arguments])
        self._save()
        try:
            yield
        finally:
            self._undo_to(depth)

    def clear(self) -> int:
        """Undo what an interrupted harness left; return the number of actions."""
        left = len(self._entries)
        self._undo_to(0)
        return left

    def _undo_to(self, depth: int) -> None:
        while len(self._entries) > depth:  # more than one if an interrupt cut an inner action short
            self._undo_last()

    def _undo_last(self) -> None:
        action, *arguments = self._entries[-1]
        try:
            ACTIONS[action](*arguments)
        except OSError as error:
            raise MachineError(
                f"cannot clear up ({action} {' '.join(map(str, arguments))}): {error.strerror}; do it by hand, then "
                f"delete {self._path}"
            ) from None
        self._entries.pop()
        self._save()

    def _save(self) -> None:
        write_durable(json.dumps(self._entries), self._path)


def _read(path: Path) -> list[list[Any]]:
    """Read the actions that are left. A damaged file is an error and not an empty list: nothing else knows them."""
    with contextlib.suppress(ValueError, TypeError):
        entries = json.loads(path.read_text()) if path.exists() else []
        if isinstance(entries, list) and all(action in ACTIONS for action, *_ in entries):
            return entries
    raise MachineError(
        f"{path} is damaged, so what a killed harness left is not known: remove dualblade-* in storage.directory and "
        ".rep-* in the results, restart the machine, which resets the kernel's settings, then delete the file"
    )


def _holder(lock: IO[str]) -> str:
    lock.seek(0)
    return lock.read() or "unknown"
