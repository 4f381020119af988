"""Where a run's cgroup can be made, on made-up trees: version 1, hybrid, containers, delegated version 2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dualblade.linux.mounts import mount_of, read_mounts
from experiments.errors import MachineError
from experiments.machine import cgroup_tree
from experiments.machine.cgroup_tree import SCOPE_MARK, enter_scope, find_parent

V1 = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V2_BESIDE = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
V2 = "30 23 0:27 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def tree(root: Path, own: str, mountinfo: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    (root / "proc/self/mountinfo").write_text(mountinfo)


def group(path: Path, *, controllers: str = "memory", children: str = "", procs: str = "") -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.controllers").write_text(controllers)
    (path / "cgroup.subtree_control").write_text(children)
    (path / "cgroup.procs").write_text(procs)


def test_version_1_takes_the_harness_own_group(tmp_path: Path) -> None:
    tree(tmp_path, "4:memory:/jobs/one\n1:cpu:/\n0::/\n", V1.format(root="/") + V2_BESIDE)
    (tmp_path / "sys/fs/cgroup/memory/jobs/one").mkdir(parents=True)
    assert find_parent(tmp_path) == (1, tmp_path / "sys/fs/cgroup/memory/jobs/one")


def test_a_container_sees_its_own_part_of_the_tree_at_the_mount_point(tmp_path: Path) -> None:
    tree(tmp_path, "4:memory:/docker/abc\n", V1.format(root="/docker/abc"))
    (tmp_path / "sys/fs/cgroup/memory").mkdir(parents=True)
    assert find_parent(tmp_path) == (1, tmp_path / "sys/fs/cgroup/memory")


def test_version_2_takes_the_nearest_group_whose_children_have_memory(tmp_path: Path) -> None:
    tree(tmp_path, "0::/user.slice/session\n", V2.format(root="/"))
    top = tmp_path / "sys/fs/cgroup"
    group(top, children="cpu memory")
    group(top / "user.slice", children="cpu memory pids")
    group(top / "user.slice/session", procs="1\n2\n")
    assert find_parent(tmp_path) == (2, top / "user.slice")


def test_alone_in_a_delegated_group_the_harness_steps_into_a_leaf(tmp_path: Path) -> None:
    tree(tmp_path, "0::/scope\n", V2.format(root="/"))
    top = tmp_path / "sys/fs/cgroup"
    group(top, controllers="cpu")
    group(top / "scope", procs=f"{os.getpid()}\n")
    assert find_parent(tmp_path) == (2, top / "scope")
    assert (top / "scope/dualblade-harness/cgroup.procs").read_text() == str(os.getpid())
    assert (top / "scope/cgroup.subtree_control").read_text() == "+memory"


def test_without_the_memory_controller_it_says_so(tmp_path: Path) -> None:
    tree(tmp_path, "0::/scope\n", V2.format(root="/"))
    top = tmp_path / "sys/fs/cgroup"
    group(top, controllers="cpu")
    group(top / "scope", controllers="cpu")
    with pytest.raises(MachineError, match=r"systemd-run --user --scope"):
        find_parent(tmp_path)


def test_a_kernel_without_cgroups_is_named(tmp_path: Path) -> None:
    tree(tmp_path, "1:cpu:/\n", "")
    with pytest.raises(MachineError, match="no memory cgroup controller"):
        find_parent(tmp_path)


MOUNTS = (
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "28 27 259:1 / /mnt/my\\040disk rw,noatime shared:1 master:2 - xfs /dev/nvme0n1p1 rw,attr2\n"
    "29 28 0:40 / /mnt/my\\040disk rw - tmpfs tmpfs rw,size=4k\n"
)


@pytest.mark.parametrize(
    ("path", "fs_type"),
    [("/home/user", "ext4"), ("/mnt/my disk/kv", "tmpfs"), ("/mnt/my", "ext4")],
)
def test_a_path_lies_on_the_longest_and_topmost_mount(tmp_path: Path, path: str, fs_type: str) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert mount_of(Path(path), read_mounts(tmp_path / "mountinfo")).fs_type == fs_type


class Replaced(Exception):
    """What exec would have become."""


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with a systemd of their own, whose session may not limit memory."""
    (tmp_path / "bus").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv(SCOPE_MARK, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(cgroup_tree.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(cgroup_tree, "find_parent", _no_parent)
    monkeypatch.setattr(os, "execvpe", _replace)


def _no_parent() -> tuple[int, Path]:
    raise MachineError("not delegated")


def _replace(file: str, arguments: list[str], environment: dict[str, str]) -> None:
    assert environment[SCOPE_MARK]
    raise Replaced(file, arguments)


@pytest.mark.usefixtures("desktop")
def test_without_root_the_command_goes_on_in_a_delegated_scope() -> None:
    with pytest.raises(Replaced) as replaced:
        enter_scope(["-m", "experiments.run", "scale=8"])
    file, arguments = replaced.value.args
    assert file == "systemd-run"
    assert arguments[1:5] == ["--user", "--scope", "--quiet", "-p"]
    assert arguments[-3:] == ["-m", "experiments.run", "scale=8"]


@pytest.mark.usefixtures("desktop")
@pytest.mark.parametrize("reason", ["root", "in a scope", "no systemd", "delegated already"])
def test_where_there_is_no_need_or_way_nothing_happens(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason == "root":
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    if reason == "in a scope":
        monkeypatch.setenv(SCOPE_MARK, "1")
    if reason == "no systemd":
        monkeypatch.delenv("XDG_RUNTIME_DIR")
    if reason == "delegated already":
        monkeypatch.setattr(cgroup_tree, "find_parent", lambda: (2, Path("/sys/fs/cgroup")))
    enter_scope(["-m", "experiments.run"])
