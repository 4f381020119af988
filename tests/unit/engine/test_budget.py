"""B_pc on machines made of files: a folder stands in for /proc and /sys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualblade.errors import BudgetError
from dualblade.linux.cgroups import MemoryCgroup
from dualblade.plan.budget import Budget, least_room, measure_budget, refuse_unless_free

MIB = 2**20
V1_UNLIMITED = 9223372036854771712
V1 = "31 23 0:28 {root} {point} rw,relatime shared:9 - cgroup cgroup rw,memory"
V2 = "42 23 0:29 {root} {point} rw - cgroup2 cgroup2 rw,nsdelegate"


class Group(NamedTuple):
    """Numbers that a memory cgroup reports; a limit of None means no limit."""

    limit: int | None = None
    anon: int = 0
    kernel: int = 0
    cache: int = 0
    mapped: int = 0
    shmem: int = 0
    high: int | None = None

    @property
    def usage(self) -> int:
        return self.anon + self.kernel + self.cache + self.shmem


class Machine:
    """A root directory with /proc files and cgroup trees."""

    def __init__(self, root: Path, available_bytes: int = 1 << 40) -> None:
        self.root = root
        self.write("proc/meminfo", f"MemTotal: 1 kB\nMemAvailable:   {available_bytes >> 10} kB\n")
        self.write("proc/self/status", "Name:\tpython3\nRssAnon:\t    2048 kB\n")
        self.write("proc/self/cgroup", "")
        self.write("proc/self/mountinfo", "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n")

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as out:
            out.write(text)

    def mount(self, line: str, root: str, point: str, own: str | None = None) -> None:
        self.write("proc/self/mountinfo", line.format(root=root, point=point) + "\n")
        if own is not None:
            self.write("proc/self/cgroup", own + "\n")

    def v1(self, folder: str, group: Group) -> None:
        file_lru = f"total_active_file {group.cache // 3}\ntotal_inactive_file {group.cache - group.cache // 3}\n"
        counters = f"total_rss {group.anon}\ntotal_mapped_file {group.mapped}\ntotal_shmem {group.shmem}\n"
        self.write(f"{folder}/memory.stat", f"rss 0\nactive_file 0\n{counters}{file_lru}")
        self.write(f"{folder}/memory.limit_in_bytes", f"{V1_UNLIMITED if group.limit is None else group.limit}\n")
        self.write(f"{folder}/memory.usage_in_bytes", f"{group.usage}\n")
        self.write(f"{folder}/memory.kmem.usage_in_bytes", f"{group.kernel}\n")

    def v2(self, folder: str, group: Group) -> None:
        file_lru = f"active_file {group.cache // 3}\ninactive_file {group.cache - group.cache // 3}\n"
        counters = f"anon {group.anon}\nkernel {group.kernel}\nfile_mapped {group.mapped}\nshmem {group.shmem}\n"
        self.write(f"{folder}/memory.stat", counters + file_lru)
        self.write(f"{folder}/memory.max", f"{'max' if group.limit is None else group.limit}\n")
        self.write(f"{folder}/memory.high", f"{'max' if group.high is None else group.high}\n")
        self.write(f"{folder}/memory.current", f"{group.usage}\n")

    def budget(self) -> Budget:
        return measure_budget(self.root)

    def refuse_unless_free(self, needed_bytes: int) -> None:
        refuse_unless_free(needed_bytes, self.root)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_cgroup_the_system_decides(tmp_path: Path) -> None:
    budget = Machine(tmp_path, available_bytes=300 * MIB).budget()
    assert budget == Budget(300 * MIB, None, "MemAvailable", 2 * MIB, 300 * MIB)


def test_the_least_room_above_a_process_decides_on_v1(machine: Machine) -> None:
    machine.mount(V1, "/", "/sys/fs/cgroup/memory", "4:memory:/outer/inner")
    machine.v1("/sys/fs/cgroup/memory", Group())
    machine.v1("/sys/fs/cgroup/memory/outer", Group(limit=500 * MIB, anon=250 * MIB, cache=100 * MIB))
    machine.v1("/sys/fs/cgroup/memory/outer/inner", Group(limit=400 * MIB, anon=40 * MIB, kernel=2 * MIB))
    budget = machine.budget()
    assert budget.b_pc_bytes == 250 * MIB
    assert budget.limited_by == "/sys/fs/cgroup/memory/outer/memory.limit_in_bytes"
    assert budget.limit_bytes == 500 * MIB
    assert budget.process_bytes == 42 * MIB


def test_the_least_room_above_a_process_decides_on_v2(machine: Machine) -> None:
    machine.mount(V2, "/", "/sys/fs/cgroup", "0::/outer/inner")
    machine.v2("/sys/fs/cgroup/outer", Group(limit=500 * MIB, anon=50 * MIB))
    machine.v2("/sys/fs/cgroup/outer/inner", Group(limit=400 * MIB, anon=50 * MIB, cache=9 * MIB))
    budget = machine.budget()
    assert budget.b_pc_bytes == 350 * MIB
    assert budget.limited_by == "/sys/fs/cgroup/outer/inner/memory.max"


def test_memory_high_limits_like_memory_max(machine: Machine) -> None:
    machine.mount(V2, "/", "/sys/fs/cgroup", "0::/job")
    machine.v2("/sys/fs/cgroup/job", Group(limit=400 * MIB, high=300 * MIB, anon=50 * MIB))
    budget = machine.budget()
    assert budget.b_pc_bytes == 250 * MIB
    assert budget.limited_by == "/sys/fs/cgroup/job/memory.high"


def test_memory_high_may_be_exceeded_and_leaves_nothing(machine: Machine) -> None:
    machine.mount(V2, "/", "/sys/fs/cgroup", "0::/job")
    machine.v2("/sys/fs/cgroup/job", Group(high=0, anon=50 * MIB))
    assert machine.budget().b_pc_bytes == 0


def test_a_leaf_without_the_controller_is_limited_by_its_parents(machine: Machine) -> None:
    machine.mount(V2, "/", "/sys/fs/cgroup", "0::/slice/leaf")
    machine.v2("/sys/fs/cgroup/slice", Group(limit=70 * MIB))
    machine.write("/sys/fs/cgroup/slice/leaf/cgroup.procs", "")
    assert machine.budget().b_pc_bytes == 70 * MIB


def test_hybrid_the_controller_is_in_v1_while_v2_is_mounted_beside_it(machine: Machine) -> None:
    machine.mount(V2, "/", "/sys/fs/cgroup/unified", "0::/user.slice")
    machine.mount(V1, "/", "/sys/fs/cgroup/memory", "4:memory:/job")
    machine.write("/sys/fs/cgroup/unified/user.slice/cgroup.procs", "")
    machine.v1("/sys/fs/cgroup/memory/job", Group(limit=70 * MIB))
    assert machine.budget().b_pc_bytes == 70 * MIB


@pytest.mark.parametrize(
    ("root", "own", "folder"),
    [
        pytest.param("/", "/", "", id="cgroup namespace"),
        pytest.param("/docker/abc", "/docker/abc", "", id="bind mount of the container's own cgroup"),
        pytest.param("/docker/abc", "/docker/abc/job", "job", id="child of a container"),
        pytest.param("/../..", "/../../job", "job", id="mount made outside the namespace"),
    ],
)
def test_containers(machine: Machine, root: str, own: str, folder: str) -> None:
    machine.mount(V2, root, "/sys/fs/cgroup", f"0::{own}")
    machine.v2(f"/sys/fs/cgroup/{folder}", Group(limit=70 * MIB))
    assert machine.budget().b_pc_bytes == 70 * MIB


def test_the_mount_that_shows_more_ancestors_counts(machine: Machine) -> None:
    machine.mount(V2, "/slice/job", "/mnt/job", "0::/slice/job")
    machine.mount(V2, "/", "/my\\040cgroups")
    machine.v2("/mnt/job", Group(limit=90 * MIB))
    machine.v2("/my cgroups/slice/job", Group(limit=90 * MIB))
    machine.v2("/my cgroups/slice", Group(limit=70 * MIB))
    assert machine.budget().limited_by == "/my cgroups/slice/memory.max"


def test_a_cgroup_outside_the_namespace_is_not_mistaken_for_one_inside(machine: Machine) -> None:
    machine.mount(V2, "/", "/sys/fs/cgroup", "0::/../job")
    machine.v2("/sys/fs/cgroup/job", Group(limit=70 * MIB))
    assert machine.budget().limited_by == "MemAvailable"


def test_a_cgroup_that_is_gone_leaves_its_ancestors(machine: Machine) -> None:
    machine.mount(V1, "/", "/sys/fs/cgroup/memory", "4:memory:/job/run (deleted)")
    machine.v1("/sys/fs/cgroup/memory/job", Group(limit=70 * MIB))
    assert machine.budget().b_pc_bytes == 70 * MIB


def test_mapped_files_are_needed_but_mapped_shared_memory_is_not_counted_twice(machine: Machine) -> None:
    machine.mount(V2, "/", "/sys/fs/cgroup", "0::/job")
    group = Group(limit=400 * MIB, cache=100 * MIB, shmem=50 * MIB, mapped=50 * MIB + 30 * MIB)
    machine.v2("/sys/fs/cgroup/job", group)
    assert machine.budget().b_pc_bytes == (400 - 50 - 30) * MIB


def test_buffers_that_do_not_fit_are_refused_with_the_numbers(machine: Machine) -> None:
    machine.mount(V1, "/", "/sys/fs/cgroup/memory", "4:memory:/job")
    machine.v1("/sys/fs/cgroup/memory/job", Group(limit=100, anon=30))
    with pytest.raises(BudgetError, match=r"80 bytes .*/job/memory.limit_in_bytes leaves 70; raise that limit by 10"):
        machine.refuse_unless_free(80)
    machine.refuse_unless_free(70)


def test_only_what_would_be_killed_is_refused(machine: Machine) -> None:
    """Mapped files and memory above memory.high can be reclaimed; anonymous memory under the hard limit cannot."""
    machine.mount(V2, "/", "/sys/fs/cgroup", "0::/job")
    machine.v2(
        "/sys/fs/cgroup/job", Group(limit=400 * MIB, high=200 * MIB, anon=100 * MIB, cache=300 * MIB, mapped=300 * MIB)
    )
    machine.refuse_unless_free(300 * MIB)
    with pytest.raises(BudgetError, match=r"/job/memory.max leaves 314,572,800; raise that limit by 1 bytes"):
        machine.refuse_unless_free(300 * MIB + 1)


def test_accounts_that_cannot_be_read_refuse_nothing(tmp_path: Path) -> None:
    refuse_unless_free(1 << 50, tmp_path)


AMPLE = 1 << 40
amounts = st.integers(0, 1 << 34)


@st.composite
def cgroups(draw: st.DrawFn) -> MemoryCgroup:
    needed_bytes, reclaimable_bytes = draw(amounts), draw(amounts)
    usage_bytes = needed_bytes + reclaimable_bytes
    return MemoryCgroup("limit", draw(st.none() | amounts), usage_bytes, reclaimable_bytes, needed_bytes)


def b_pc(groups: list[MemoryCgroup]) -> int:
    return least_room(groups, AMPLE, 0).b_pc_bytes


def charge(groups: list[MemoryCgroup], needed_bytes: int = 0, cached_bytes: int = 0) -> list[MemoryCgroup]:
    """Charge more to the cgroups: a charge to one counts in all above it."""
    return [
        replace(
            group,
            usage_bytes=group.usage_bytes + needed_bytes + cached_bytes,
            reclaimable_bytes=group.reclaimable_bytes + cached_bytes,
        )
        for group in groups
    ]


@given(st.lists(cgroups()))
def test_a_full_budget_fits_every_limit_and_a_byte_more_does_not(groups: list[MemoryCgroup]) -> None:
    limits = [(group.limit_bytes, group.needed_bytes) for group in groups if group.limit_bytes is not None]
    already_over = any(needed > limit for limit, needed in limits)
    full = b_pc(groups)
    assert already_over or all(needed + full <= limit for limit, needed in limits)
    assert full in (0, AMPLE) or any(needed + full + 1 > limit for limit, needed in limits)
    assert full == 0 or not already_over


@given(st.lists(cgroups()), amounts)
def test_page_cache_already_there_changes_nothing(groups: list[MemoryCgroup], cached_bytes: int) -> None:
    assert b_pc(charge(groups, cached_bytes=cached_bytes)) == b_pc(groups)
