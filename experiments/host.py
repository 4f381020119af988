"""The machine that a harness runs on, be it the user's own or a guest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.engine import Launch, execute


@dataclass(frozen=True)
class Host:
    """How engines are started here, and what results say of the machine."""

    launch: Launch = execute
    provenance: Mapping[str, Any] = field(default_factory=lambda: {"emulated": False})
