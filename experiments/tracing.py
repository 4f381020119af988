"""The tracer of a run: attached when everything is set up, detached when the engine has ended, then decoded.

Nothing of it needs undoing by the next harness: the tracer dies with this one, and its text lies in the workspace.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualblade.config.run import RunConfig
from dualblade.config.sections import read_section, require
from dualblade.config.storage import StorageConfig
from dualblade.linux.block_device import BlockDevice, backing_device
from dualblade.linux.mounts import mount_of, read_mounts
from dualblade.run.run_files import RunFile
from experiments.errors import MachineError, RunError
from experiments.processes.engine import enter

if TYPE_CHECKING:
    from traces.schema import TraceInfo

BLOCK_LAYER = ("block_requests", "block_latency", "io_layers")
LAYERS, NVME_LAYERS = "io_layers", "io_layers_nvme"


@dataclass(frozen=True)
class TraceSettings:
    """Which script traces a run (None: none), and how."""

    name: str
    script: str | None = None
    keep_raw: bool = False
    buffer_pages: int = 4096
    attach_timeout_s: float = 120.0

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> TraceSettings:
        """Check the section `trace` of a configuration.

        Raises:
            ConfigurationError: a setting is unknown or of the wrong type, or a value that no tracer takes.
        """
        return read_section(cls, config, "trace.")

    def __post_init__(self) -> None:
        pages = self.buffer_pages
        require(pages >= 1 and not pages & (pages - 1), f"trace.buffer_pages={pages}", "a power of two, as in 4096")


class NoTrace:
    """A run without a tracer."""

    def stop(self) -> None:
        """Nothing to stop."""

    def decode(self) -> dict[str, Any]:
        """Return what result.json states about the trace."""
        return {"name": "none", "valid": None, "reason": None}


class RunTrace:
    """The tracer of one run, and the files it leaves in the run's folder."""

    def __init__(self, settings: TraceSettings, folder: Path, attach_s: float, stop: Any) -> None:
        self._settings = settings
        self._folder = folder
        self._attach_s = attach_s
        self._stop = stop

    def stop(self) -> None:
        """Detach the tracer."""
        with _worded():
            self._stop()

    def decode(self) -> dict[str, Any]:
        """Write what the trace comes to, device_io.parquet for a trace of commands; returns what is known about it."""
        with _worded():
            info = self._write()
        return {"name": self._settings.name, "attach_s": self._attach_s, **info.as_dict()}

    def _write(self) -> TraceInfo:
        from traces.attribution import RunAttribution
        from traces.decode import decode
        from traces.formats import block_latency, io_layers, page_cache

        folder, raw = self._folder, self._folder / RunFile.TRACE_TEXT
        if self._settings.script == "block_latency":
            return block_latency.write(raw, folder / RunFile.BLOCK_LATENCY)
        if self._settings.script == "page_cache":
            return page_cache.write(raw, folder / RunFile.PAGE_CACHE)
        info = decode(raw, folder / RunFile.DEVICE_IO, attribution=RunAttribution(folder))
        if info.source in (LAYERS, NVME_LAYERS):
            io_layers.write(raw, folder / RunFile.IO_LAYERS, nvme=info.source == NVME_LAYERS)
        return info


@contextlib.contextmanager
def traced(settings: TraceSettings, run: RunConfig, scratch: Path, folder: Path) -> Iterator[NoTrace | RunTrace]:
    """A tracer that is ready; gone when the block is left, with its text unless that is to be kept.

    Raises:
        MachineError: no trace of this kind can be taken here.
    """
    if settings.script is None:
        yield NoTrace()
        return
    from traces.capture import tracing
    from traces.errors import TraceError

    passthrough = run.storage.backend == "nvme" and run.variant.overflow == "direct"
    if passthrough and settings.script in BLOCK_LAYER:
        raise MachineError(
            f"{settings.script} sees NVMe passthrough commands without their addresses; set trace=nvme_commands"
        )
    devices = disks(run.storage, scratch)
    script = script_for(settings.script, devices)
    arguments = _arguments(script, devices)
    with contextlib.ExitStack() as stack:
        try:
            tracer = stack.enter_context(
                tracing(
                    script,
                    folder / RunFile.TRACE_TEXT,
                    arguments,
                    disks=[device.name for device in devices],
                    log=folder / RunFile.TRACE_LOG,
                    buffer_pages=settings.buffer_pages,
                    attach_timeout_s=settings.attach_timeout_s,
                    prefix=enter(None),
                )
            )
        except TraceError as error:
            raise MachineError(str(error)) from None
        if not settings.keep_raw:
            stack.callback(lambda: (folder / RunFile.TRACE_TEXT).unlink(missing_ok=True))
        yield RunTrace(settings, folder, tracer.attach_s, tracer.stop)


def disks(storage: StorageConfig, scratch: Path) -> list[BlockDevice]:
    """The whole disks that a run uses: the one below its folder, and Group 2's own."""
    below = backing_device(mount_of(scratch, read_mounts()))
    found = [below.disk()] if below else []
    if storage.block_device and Path(storage.block_device).is_block_device():
        found.append(BlockDevice.of_node(Path(storage.block_device)).disk())
    return list(dict.fromkeys(found))


def script_for(wanted: str, devices: list[BlockDevice]) -> str:
    """The script for these disks: where all are NVMe ones, their driver tells itself and the device apart."""
    split = devices and all(_controller(device) is not None for device in devices)
    return NVME_LAYERS if wanted == LAYERS and split else wanted


def _arguments(script: str, devices: list[BlockDevice]) -> list[int]:
    """The script's positional parameters: the devices, in the terms of its tracepoints."""
    if script.startswith("nvme"):
        numbers = [_controller(device) for device in devices if device.name.startswith("nvme")]
        if not numbers:
            found = ", ".join(device.name for device in devices) or "no disk"
            raise MachineError(f"{script} sees NVMe commands and this run uses {found}; set trace=block_requests")
        return [] if None in numbers else [number + 1 for number in numbers if number is not None]
    return [device.number for device in devices]


def _controller(device: BlockDevice) -> int | None:
    """Number of a namespace's controller; None where several share it."""
    match = re.fullmatch(r"nvme(\d+)n\d+", device.name)
    return int(match[1]) if match and "nvme-subsystem" not in str(device.sysfs) else None


@contextlib.contextmanager
def _worded() -> Iterator[None]:
    """A trace that failed is a run that failed."""
    from traces.errors import TraceError

    try:
        yield
    except TraceError as error:
        raise RunError(str(error)) from None
