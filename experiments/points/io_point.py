"""A point that measures an I/O path by fio, without KV, and the identity that finds its result again."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dualblade.config.run import RunConfig
from dualblade.config.sections import read_section, require
from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError
from dualblade.run.result_schema import IO_PATHS_KIND
from dualblade.units import KIB, MIB
from experiments.guest.settings import GuestSettings
from experiments.points.point import repetition
from experiments.processes import fio

IoPath = Literal["ext4_buffered", "ext4_direct", "block_direct", "io_uring_cmd"]
KIND = IO_PATHS_KIND

PATHS: tuple[IoPath, ...] = get_args(IoPath)


def available(backend: str) -> list[IoPath]:
    """The paths that a storage of this backend has. Only an NVMe device can bypass the block layer."""
    return [path for path in PATHS if path != "io_uring_cmd" or backend == "nvme"]


@dataclass(frozen=True)
class IoConfig:
    """A grid of request sizes and queue depths on one path.

    Requests go to each block of `size_mib` once and in random order. So no request is served by readahead, or by a page
    that an earlier request read. A cell of the grid ends with the last block or after `runtime_s`.
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
            ConfigurationError: a value cannot be used.
        """
        return read_section(cls, section, "io.")

    def __post_init__(self) -> None:
        for name in ("block_kib", "queue_depths"):
            counts = list(getattr(self, name))
            require(min(counts, default=0) >= 1, f"io.{name}={counts}", "a list of whole numbers of 1 or more")
        require(self.size_mib >= 1, f"io.size_mib={self.size_mib}", "1 or more")
        require(self.runtime_s > 0, f"io.runtime_s={self.runtime_s:g}", "seconds, more than 0")
        largest = max(self.block_kib)
        if self.size_mib * MIB % (largest * KIB):
            raise ConfigurationError(
                f"io.size_mib={self.size_mib} is no multiple of the largest of io.block_kib, {largest}"
            )

    @property
    def size_bytes(self) -> int:
        return self.size_mib * MIB

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Request size in bytes and queue depth of each cell, sizes outermost."""
        return [(block * KIB, depth) for block in self.block_kib for depth in self.queue_depths]


@dataclass(frozen=True)
class IoPoint:
    """A checked configuration with a section `io`. `config` is all of it, to be stored with the result."""

    io: IoConfig
    storage: StorageConfig
    testbed: str
    guest: GuestSettings | None
    repetition: int
    config: Mapping[str, Any]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> IoPoint:
        """Check a composed configuration.

        Raises:
            ConfigurationError: a value cannot be used.
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
        """Hash of all that affects the measurement: equal for equal measurements."""
        identity = dataclasses.asdict(self)
        del identity["config"], identity["guest"]
        identity |= {"guest": self.guest.identity()} if self.guest else {}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    @functools.cached_property
    def name(self) -> str:
        """Name of the folder for all repetitions."""
        digest = dataclasses.replace(self, repetition=0).config_hash[:8]
        return f"{self.io.path}-{self.io.op}-{self.storage.name}-{digest}"

    @property
    def file_bytes(self) -> int:
        """Most bytes that a run writes to the file system."""
        return self.io.size_bytes

    @property
    def label(self) -> str:
        return f"{self.io.path} {self.io.op} rep {self.repetition}"

    @property
    def group(self) -> str:
        """Name under which the status counts this point."""
        return self.io.path

    def code(self) -> str:
        """Version of the program that measures; a result with another version is stale."""
        return fio.version()
