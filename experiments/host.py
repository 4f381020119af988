"""The machine that a harness runs on, be it the user's own or a guest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments import environment
from experiments.engine import Launch, execute
from experiments.storage_rate import StorageRates


@dataclass(frozen=True)
class Host:
    """How engines are started here, what results say of machine and code, and how fast its storages are found to be."""

    launch: Launch = execute
    provenance: Mapping[str, Any] = field(default_factory=lambda: {"emulated": False})
    rates: StorageRates = field(default_factory=StorageRates)
    code: Callable[[], dict[str, Any]] = environment.collect_code
