"""An I/O path by itself, without KV: what fio asks of it, and the identity by which its result is found again."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dualblade.config import KIB, MIB, RunConfig, StorageConfig
from dualblade.errors import ConfigurationError
from experiments import fio
from experiments.guest_settings import GuestSettings
from experiments.point import repetition

IoPath = Literal["ext4_buffered", "ext4_direct", "block_direct", "io_uring_cmd"]
KIND = "io_paths"  # of a result.json

PATHS: tuple[IoPath, ...] = get_args(IoPath)
OPS = ("read", "write")


def available(backend: str) -> list[IoPath]:
    """The paths that a storage of this backend has: those past the block layer take an NVMe device."""
    return [path for path in PATHS if path != "io_uring_cmd" or backend == "nvme"]


@dataclass(frozen=True)
class IoConfig:
    """A grid of request sizes and queue depths on one path.

    Requests go to each block of `size_mib` once and in random order, so that none is served by readahead or by a page
    that an earlier one brought in; a cell of the grid ends with the last block or after `runtime_s`.
    """

    path: IoPath
    op: Literal["read", "write"]
    block_kib: tuple[int, ...]
    queue_depths: tuple[int, ...]
    size_mib: int
    runtime_s: float

    @classmethod
    def from_mapping(cls, section: Mapping[str, Any]) -> IoConfig:
        """Check the section `io` of a configuration.

        Raises:
            ConfigurationError: a value that cannot be measured.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if section.keys() != known:
            odd = ", ".join(sorted(section.keys() ^ known))
            raise ConfigurationError(f"io must have the settings {', '.join(sorted(known))}; look at {odd}")
        if section["path"] not in PATHS or section["op"] not in OPS:
            raise ConfigurationError(
                f"io.path={section['path']!r}, io.op={section['op']!r} is not known; use one of {', '.join(PATHS)} "
                f"and one of {', '.join(OPS)}"
            )
        lists = {name: _counts(section, name) for name in ("block_kib", "queue_depths")}
        (size_mib,), runtime_s = _counts({"size_mib": [section["size_mib"]]}, "size_mib"), section["runtime_s"]
        if isinstance(runtime_s, bool) or not isinstance(runtime_s, int | float) or runtime_s <= 0:
            raise ConfigurationError(f"io.runtime_s={runtime_s!r} is not a time; give seconds, more than 0")
        if size_mib * MIB % (max(lists["block_kib"]) * KIB):
            raise ConfigurationError(
                f"io.size_mib={size_mib} is no multiple of the largest of io.block_kib, {max(lists['block_kib'])}"
            )
        return cls(section["path"], section["op"], **lists, size_mib=size_mib, runtime_s=float(runtime_s))

    @property
    def size_bytes(self) -> int:
        return self.size_mib * MIB

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Request size in bytes and queue depth of each cell, sizes outermost."""
        return [(block * KIB, depth) for block in self.block_kib for depth in self.queue_depths]


@dataclass(frozen=True)
class IoPoint:
    """A checked configuration that has a section `io`; `config` is the whole of it, for the record."""

    io: IoConfig
    storage: StorageConfig
    testbed: str
    guest: GuestSettings | None
    repetition: int
    config: Mapping[str, Any]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> IoPoint:
        """Check what Hydra composed.

        Raises:
            ConfigurationError: a value that no run can use.
        """
        return cls(
            io=IoConfig.from_mapping(config["io"]),
            storage=RunConfig.from_mapping(config).storage,
            testbed=config["testbed"]["name"],
            guest=GuestSettings.from_config(config),
            repetition=repetition(config["repetition"]),
            config=config,
        )

    @functools.cached_property
    def config_hash(self) -> str:
        """Hash of all that is measured: equal for equal measurements."""
        identity = dataclasses.asdict(self)
        del identity["config"], identity["guest"]
        identity |= {"guest": self.guest.identity()} if self.guest else {}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    @functools.cached_property
    def name(self) -> str:
        """Folder name, one for all repetitions."""
        digest = dataclasses.replace(self, repetition=0).config_hash[:8]
        return f"{self.io.path}-{self.io.op}-{self.storage.name}-{digest}"

    @property
    def label(self) -> str:
        return f"{self.io.path} {self.io.op} rep {self.repetition}"

    @property
    def group(self) -> str:
        """What the status counts together."""
        return self.io.path

    def code(self) -> str:
        """The program that measures: a result is current as long as it is the same."""
        return fio.version()


def _counts(section: Mapping[str, Any], name: str) -> tuple[int, ...]:
    values = section[name]
    if not isinstance(values, list) or not values:
        raise ConfigurationError(f"io.{name}={values!r} is not a list; give one, as in io.{name}=[4,64]")
    if any(isinstance(value, bool) or not isinstance(value, int) or value < 1 for value in values):
        raise ConfigurationError(f"io.{name}={values!r} must hold whole numbers of 1 or more")
    return tuple(values)
