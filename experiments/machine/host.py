"""The machine that a harness runs on: the user's own, or a guest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.machine import environment
from experiments.machine.storage_rate import StorageRates
from experiments.processes.engine import Launch, execute


@dataclass(frozen=True)
class Host:
    """How engines are started here, what results state about machine and code, and the rates of its storage."""

    launch: Launch = execute
    provenance: Mapping[str, Any] = field(default_factory=lambda: {"emulated": False})
    rates: StorageRates = field(default_factory=StorageRates)
    code: Callable[[], dict[str, Any]] = environment.collect_code
