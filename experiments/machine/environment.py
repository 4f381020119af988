"""The origin of a number: machine, kernel, storage, code and packages, recorded beside every result."""

from __future__ import annotations

import datetime
import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualblade.linux.proc import meminfo
from experiments.machine.storage_settings import describe_storage
from experiments.processes.engine import PROJECT

SCHEMA_VERSION = 1
PACKAGES = ("torch", "numpy", "cffi", "pyarrow", "hydra-core", "transformers")
DIRTY_LIMITS = ("dirty_ratio", "dirty_bytes", "dirty_background_ratio", "dirty_background_bytes")
FINGERPRINT = ("code_hash", "kernel")


def collect(folder: Path) -> dict[str, Any]:
    """Return the facts on the machine before a run whose storage is `folder`; `collect_code` has those on the code."""
    return {
        "schema": SCHEMA_VERSION,
        "started_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **collect_machine(),
        **collect_memory(),
        "storage": describe_storage(folder),
        "packages": collect_packages(),
        "python": platform.python_version(),
    }


def collect_code() -> dict[str, Any]:
    """Revision of the checkout and whether it was changed since; `code_hash` is of the engine's sources alone."""
    status = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "code_revision": _git("rev-parse", "HEAD"),
        "code_dirty": None if status is None else bool(status),
        "code_hash": code_hash(),
    }


def code_hash() -> str:
    """Hash of what is measured: the engine's sources, committed or not."""
    digest = hashlib.sha256()
    engine = PROJECT / "dualblade"
    for path in sorted(path for suffix in ("*.py", "*.c", "*.h") for path in engine.rglob(suffix)):
        if path.name != "_compiled.c" and not path.is_relative_to(engine / "doctor"):  # generated, or never measured
            digest.update(str(path.relative_to(engine)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def collect_machine() -> dict[str, Any]:
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _field(Path("/proc/cpuinfo"), "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
    }


def collect_memory() -> dict[str, Any]:
    """Return the memory's size, and the settings of the kernel's memory management that affect results."""
    return {
        "memory_bytes": meminfo().get("MemTotal"),
        "lru_generation": _text("/sys/kernel/mm/lru_gen/enabled") or "absent",
        "thp": _text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "swappiness": _text("/proc/sys/vm/swappiness"),
        "dirty": {name: _text(f"/proc/sys/vm/{name}") for name in DIRTY_LIMITS},
    }


def available_bytes() -> int:
    """Return the bytes that the kernel could give to new page cache now (MemAvailable)."""
    return meminfo()["MemAvailable"]


@functools.cache
def collect_packages() -> dict[str, str]:
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def fingerprint(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be equal for a result to be current: code, kernel, device."""
    storage = environment.get("storage", {})
    device = [storage.get("model"), storage.get("serial") or storage.get("name"), storage.get("file_system")]
    return {**{key: environment.get(key) for key in FINGERPRINT}, "device": device}


def current_fingerprint(directory: Path, code: str | None = None) -> dict[str, Any]:
    """Return the fingerprint of a run that would start now with storage in `directory`, which may not exist yet.

    `code` is the program that it would measure with; by default the engine as it is.
    """
    folder = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    storage = describe_storage(folder)
    return fingerprint({"code_hash": code or code_hash(), "kernel": platform.release(), "storage": storage})


def _git(*arguments: str) -> str | None:
    """Return the output of git on the checkout; None if there is no git or no repository."""
    try:
        done = subprocess.run(["git", "-C", str(PROJECT), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _field(path: Path, name: str) -> str | None:
    """Return the value of the first `name: value` line."""
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), None)


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
