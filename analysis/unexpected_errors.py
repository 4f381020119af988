"""Errors that nobody foresaw in one figure: kept until the others are drawn, then told in one line each."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from analysis.command_errors import MISTAKES

PACKAGE = Path(__file__).parent


@dataclass
class Bugs:
    """What each figure failed with, by its name: one must not take the others with it, and must not go unseen."""

    found: dict[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Keep what goes wrong in the body; what the user can mend passes, it has a sentence of its own."""
        try:
            yield
        except MISTAKES:
            raise
        except Exception as error:
            self.found[name] = _in_one_line(error)

    def sentences(self) -> list[str]:
        """One for each figure."""
        return [f"{name} is not drawn because of a bug: {what}" for name, what in self.found.items()]


def _in_one_line(error: Exception) -> str:
    """What it says, and the last line of the analysis that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    last = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)][-1]
    where = Path(last.filename).relative_to(PACKAGE.parent)
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({where}, line {last.lineno})"
