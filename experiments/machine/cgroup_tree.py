"""Find a place in the cgroup tree for a run's group, or ask systemd for a delegated one."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from dualblade.linux.cgroups import parse_own_cgroups
from dualblade.linux.mounts import Mount, read_mounts
from experiments.errors import MachineError
from experiments.machine.cgroup import VERSIONS, RunCgroup
from experiments.machine.journal import Journal

SCOPE_MARK = "DUALBLADE_IN_SCOPE"


@contextlib.contextmanager
def fresh_cgroup(journal: Journal) -> Iterator[RunCgroup]:
    """Yield a new group of the memory controller; it and its processes are destroyed when the block is left.

    Raises:
        MachineError: no group can be made here.
    """
    version, parent = find_parent()
    group = VERSIONS[version](parent / f"dualblade-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    with journal.undo("destroy_cgroup", version, str(group.path)):
        group.create()
        yield group


def find_parent(root: Path = Path("/")) -> tuple[int, Path]:
    """Return the version of the memory controller, and the directory in which the run's group is made.

    The group lies under the harness's own where the kernel allows it, so that every limit above the harness holds for
    the run as well. Hybrid set-ups mount both versions; the memory controller belongs to one of them.

    Raises:
        MachineError: there is no memory controller, or none that this user may use.
    """
    groups = parse_own_cgroups((root / "proc/self/cgroup").read_text())
    mounts = read_mounts(root / "proc/self/mountinfo")
    if "memory" in groups:
        mount = _mount(mounts, "cgroup", "memory")
        return 1, _writable(_directory(root, mount, groups["memory"]))
    if "" not in groups:
        raise MachineError("memory cannot be limited: this kernel has no memory cgroup controller")
    mount = _mount(mounts, "cgroup2", None)
    return 2, _delegated(_directory(root, mount, groups[""]), root / mount.point.relative_to("/"))


def why_not_here() -> str | None:
    """Return why memory cannot be limited on this machine; None if it can, also by a scope of systemd."""
    try:
        find_parent()
    except MachineError as error:
        return None if _scope_can_be_had() else str(error)
    return None


def enter_scope(arguments: Sequence[str]) -> None:
    """Start this command again in a scope that systemd delegates; return if that is not needed or not possible."""
    if not _scope_can_be_had():
        return
    try:
        find_parent()
    except MachineError:
        scope = ["systemd-run", "--user", "--scope", "--quiet", "-p", "Delegate=yes", "--"]
        os.execvpe(scope[0], [*scope, sys.executable, *arguments], {**os.environ, SCOPE_MARK: "1"})


def _scope_can_be_had() -> bool:
    bus = Path(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent"), "bus")
    mine = os.geteuid() != 0 and SCOPE_MARK not in os.environ
    return mine and bus.exists() and shutil.which("systemd-run") is not None


def _mount(mounts: list[Mount], fs_type: str, controller: str | None) -> Mount:
    for mount in mounts:
        if mount.fs_type == fs_type and (controller is None or controller in mount.super_options.split(",")):
            return mount
    raise MachineError(f"memory cannot be limited: no {fs_type} file system is mounted; mount it under /sys/fs/cgroup")


def _directory(root: Path, mount: Mount, group: PurePosixPath) -> Path:
    """Return a group's directory. A container sees only a part of the tree, with that part as its root."""
    inside = group.relative_to(mount.root) if group.is_relative_to(mount.root) else PurePosixPath()
    return root / mount.point.relative_to("/") / inside


def _writable(directory: Path) -> Path:
    if os.access(directory, os.W_OK):
        return directory
    raise MachineError(
        f"memory cannot be limited: {directory} (cgroup v1) is not writable for user {os.geteuid()}; "
        "run as root, or on a system with cgroup v2 and systemd"
    )


def _delegated(own: Path, top: Path) -> Path:
    """Return the nearest group, from our own upwards, in which groups with the memory controller can be made."""
    above = [path for path in (own, *own.parents) if path.is_relative_to(top)]
    for directory in above:
        if os.access(directory, os.W_OK) and "memory" in _words(directory / "cgroup.subtree_control"):
            return directory
    for directory in above:
        if os.access(directory, os.W_OK) and _enable_memory(directory):
            return directory
    raise MachineError(
        f"memory cannot be limited: no group from {own} up to {top} is delegated to user {os.geteuid()} with the "
        "memory controller; run as root, or by systemd-run --user --scope -p Delegate=yes"
    )


def _enable_memory(directory: Path) -> bool:
    """Enable the memory controller for child groups.

    A group with processes of its own cannot (the kernel's "no internal process" rule), so the harness steps down into
    a leaf first; if others are in the group as well, the kernel refuses all the same.
    """
    if "memory" not in _words(directory / "cgroup.controllers"):
        return False
    if _words(directory / "cgroup.procs") == [str(os.getpid())]:
        leaf = directory / "dualblade-harness"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
    try:
        (directory / "cgroup.subtree_control").write_text("+memory")
    except OSError:
        return False
    return True


def _words(path: Path) -> list[str]:
    return path.read_text().split()
