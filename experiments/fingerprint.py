"""The fingerprint that a run would have now, on any testbed: an older result is stale if its own differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.guest import kernel
from experiments.guest.settings import NAME
from experiments.machine import environment
from experiments.points.any_point import AnyPoint
from experiments.results_folder import StoredResult

Local = Callable[[Path, "str | None"], dict[str, Any]]

# Model and file system of the guest's SSD, which QEMU emulates.
EMULATED_MODEL, EMULATED_FILE_SYSTEM = "QEMU NVMe Ctrl", "ext4"


def current_fingerprint(point: AnyPoint, local: Local = environment.current_fingerprint) -> dict[str, Any]:
    """The fingerprint that a run of this point would have now. `local` returns it for a folder of this machine."""
    if point.guest is None:
        return local(Path(point.storage.directory), point.code())
    return _guest_fingerprint(point.guest.ssd.serial, point.guest.kernel, point.code())


def current_fingerprint_of(
    stored: StoredResult, directory: Path, code: str | None, local: Local = environment.current_fingerprint
) -> dict[str, Any]:
    """The fingerprint that a result would have if it were measured again now.

    `directory` is the storage of this machine; `code` is the hash of the measuring program, None for the engine's.
    """
    if stored.environment.get("testbed") != NAME:
        return local(directory, code)
    serial = stored.environment.get("storage", {}).get("serial")
    package = stored.environment.get("guest", {}).get("kernel_package", kernel.META_PACKAGE)
    return _guest_fingerprint(serial, package, code or environment.code_hash())


def _guest_fingerprint(serial: str | None, kernel_package: str, code: str) -> dict[str, Any]:
    """A guest's fingerprint; its kernel is None until it is unpacked, so no result is current before."""
    cached = kernel.cached(kernel_package)
    storage = {"model": EMULATED_MODEL, "serial": serial, "file_system": EMULATED_FILE_SYSTEM}
    release = cached.release if cached else None
    return environment.fingerprint({"code_hash": code, "kernel": release, "storage": storage})
