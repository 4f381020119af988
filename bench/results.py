"""bench/results.json: ratios first, then each part with its intervals, its raw pairs and where they were measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.comparison import Comparison
from dualblade.linux.files import write_json
from experiments.errors import MachineError

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Results:
    """Parts by name, each as it was last measured."""

    parts: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read the results that exist; none if there is no file.

        Raises:
            MachineError: the file is something else.
        """
        try:
            return cls(dict(json.loads(path.read_text())["parts"]))
        except FileNotFoundError:
            return cls({})
        except (ValueError, KeyError, TypeError):
            raise MachineError(f"{path} is not a result of this bench; remove it, or choose another --out") from None

    def with_part(self, name: str, measured: dict[str, Any], environment: dict[str, Any]) -> Results:
        """Put a part in, or in the place of an older one."""
        comparisons: list[Comparison] = measured["comparisons"]
        by_name = {comparison.name: comparison.as_dict() for comparison in comparisons}
        return Results({**self.parts, name: {**measured, "comparisons": by_name, "environment": environment}})

    @property
    def comparisons(self) -> dict[str, Any]:
        """Return the comparisons of all parts."""
        return {name: entry for part in self.parts.values() for name, entry in part["comparisons"].items()}

    def lines(self) -> list[str]:
        """One line for each comparison."""
        return [_line(name, entry) for name, entry in self.comparisons.items()]

    def write(self, path: Path) -> None:
        """Write JSON, complete or not at all."""
        ratios = {name: entry["ratio"] for name, entry in self.comparisons.items()}
        content = {"schema": SCHEMA_VERSION, "ratios": ratios, "parts": self.parts}
        write_json(content, path)


def _line(name: str, entry: dict[str, Any]) -> str:
    spread = "" if entry["interval"] is None else f" ({entry['interval'][0]:.3f} .. {entry['interval'][1]:.3f})"
    medians = f"{entry['ours']:.3g} / {entry['theirs']:.3g} {entry['unit']}"
    return f"{name} = {entry['ratio']:.3f}{spread}: {medians}, {entry['what']}"
