"""What a point measured now would be measured with, on whichever testbed it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.guest import kernel
from experiments.guest.settings import NAME
from experiments.machine import environment
from experiments.points.kinds import AnyPoint
from experiments.results import Record

Local = Callable[[Path, "str | None"], dict[str, Any]]

# Of QEMU's controller, which the file system of the guest's SSD lies on.
EMULATED_MODEL, EMULATED_FILE_SYSTEM = "QEMU NVMe Ctrl", "ext4"


def current_fingerprint(point: AnyPoint, local: Local = environment.current_fingerprint) -> dict[str, Any]:
    """The fingerprint that a run of this point would have now; `local` gives it for a folder of this machine."""
    if point.guest is None:
        return local(Path(point.storage.directory), point.code())
    return _guest_fingerprint(point.guest.ssd.serial, point.guest.kernel, point.code())


def current_fingerprint_of(
    record: Record, directory: Path, code: str | None, local: Local = environment.current_fingerprint
) -> dict[str, Any]:
    """The same for a result whatever its point; `code` is the program that measured it, None for the engine."""
    if record.environment.get("testbed") != NAME:
        return local(directory, code)
    serial = record.environment.get("storage", {}).get("serial")
    package = record.environment.get("guest", {}).get("kernel_package", kernel.META_PACKAGE)
    return _guest_fingerprint(serial, package, code or environment.code_hash())


def _guest_fingerprint(serial: str | None, kernel_package: str, code: str) -> dict[str, Any]:
    """A guest that has no kernel yet has no current results either."""
    cached = kernel.cached(kernel_package)
    storage = {"model": EMULATED_MODEL, "serial": serial, "file_system": EMULATED_FILE_SYSTEM}
    release = cached.release if cached else None
    return environment.fingerprint({"code_hash": code, "kernel": release, "storage": storage})
