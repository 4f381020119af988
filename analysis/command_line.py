"""Parts that the commands of this package share: their folders, what they print, and how they report errors."""

from __future__ import annotations

import argparse
import contextlib
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from analysis.results.archive import archives
from analysis.results.documents import ResultsError
from analysis.results.load import DEFAULT_RESULTS, find_runs
from dualblade.errors import DualBladeError

EXPECTED_ERRORS = (DualBladeError, OSError)  # a user can correct their cause
MAX_SENTENCES = 8
PACKAGE = Path(__file__).parent


def parse_folders(
    command: str, description: str | None, out: str, written: str, arguments: list[str] | None
) -> argparse.Namespace:
    """Return the folders `results` and `out`; `written` says what is written into `out`."""
    parser = argparse.ArgumentParser(prog=f"python -m {command}", description=description)
    parser.add_argument(
        "--results", type=Path, default=DEFAULT_RESULTS, help="folder with results (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=Path(out), help=f"folder for {written} (default: %(default)s)")
    return parser.parse_args(arguments)


def check_folder(results_dir: Path) -> None:
    """Refuse a mistyped folder. An empty one is accepted, and so is a missing default one: a sweep will fill them.

    Raises:
        ResultsError: it is no folder or archive, does not exist, or holds something else.
    """
    if results_dir.exists() and not results_dir.is_dir() and not archives(results_dir):
        raise ResultsError(f"--results {results_dir} is not a folder or an archive; name the folder that a sweep wrote")
    if not results_dir.exists() and results_dir != DEFAULT_RESULTS:
        raise ResultsError(
            f"--results {results_dir} does not exist; name the folder that a sweep wrote, "
            "or create it to have the default sweep measured into it"
        )
    visible = list(results_dir.glob("[!.]*"))
    if visible and not find_runs(results_dir):
        raise ResultsError(
            f"--results {results_dir} holds no <experiment>/<point>/rep-N/ (but {visible[0].name}); "
            "name the folder that a sweep wrote, or an empty one to have the default sweep measured into it"
        )


def message(error: Exception) -> str:
    """An expected error as one sentence. Our own errors hold their cure; those of the system are about the folders."""
    if not isinstance(error, OSError):
        return str(error)
    what = " ".join((error.strerror or str(error)).split())
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{what}; name folders that can be read and written, with room left"


def print_some(sentences: Iterable[str]) -> None:
    """Print the first sentences to stderr, and the number of the others."""
    sentences = list(sentences)
    print(*sentences[:MAX_SENTENCES], sep="\n", end="\n" if sentences else "", file=sys.stderr)
    if len(sentences) > MAX_SENTENCES:
        print(f"... and {len(sentences) - MAX_SENTENCES} more of this kind", file=sys.stderr)


@dataclass
class UnexpectedErrors:
    """Errors of single figures, by their names: bugs. The other figures are drawn, and then the errors are reported."""

    by_name: dict[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def catch(self, name: str) -> Iterator[None]:
        """Keep an unexpected error of the body. Expected errors pass: they have a sentence of their own."""
        try:
            yield
        except EXPECTED_ERRORS:
            raise
        except Exception as error:
            self.by_name[name] = _in_one_line(error)

    def sentences(self) -> list[str]:
        """One sentence for each figure."""
        return [f"{name} is not drawn because of a bug: {what}" for name, what in self.by_name.items()]


def _in_one_line(error: Exception) -> str:
    """Its message, and the last line of the analysis that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    last = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)][-1]
    where = Path(last.filename).relative_to(PACKAGE.parent)
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({where}, line {last.lineno})"
