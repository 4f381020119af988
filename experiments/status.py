"""Print what is done, failed, stale and to do: `python -m experiments.status [experiment=NAME] [OVERRIDES]`.

With an experiment, or overrides as for `experiments.run`, it counts the points of that sweep, else all results.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dualblade.errors import DualBladeError
from experiments.command_line import CommandLine
from experiments.fingerprint import current_fingerprint, current_fingerprint_of
from experiments.hydra_errors import COMPOSE_ERRORS, error_sentence
from experiments.machine import environment
from experiments.points.any_point import from_config
from experiments.points.io_point import KIND
from experiments.points.point import Settings
from experiments.points.sweep import compose_points
from experiments.processes import fio
from experiments.progress import duration
from experiments.results_folder import ResultsFolder, State, StoredResult


class Entry(NamedTuple):
    """A point and its state."""

    group: str
    label: str
    state: State
    stored: StoredResult | None


def main(arguments: list[str]) -> int:
    """Print the status; returns 0 unless the configuration cannot be used."""
    try:
        words = CommandLine.parse(arguments).overrides
        overrides = [f"+{word}" if word.startswith("experiment=") else word for word in words]
        configs = compose_points(overrides)
        planned = len(configs) > 1 or any(not override.startswith("results_dir=") for override in overrides)
        entries = list(_planned(configs) if planned else _measured(configs[0]))
    except (*COMPOSE_ERRORS, DualBladeError) as error:
        print(f"experiments.status: {error_sentence(error)}", file=sys.stderr)
        return 1
    print("\n".join(table(entries)))
    return 0


def table(entries: list[Entry]) -> Iterator[str]:
    """Yield one line per group, one per failure with its reason, and the time left."""
    groups: dict[str, Counter[State]] = {}
    for entry in entries:
        groups.setdefault(entry.group, Counter())[entry.state] += 1
    width = max([len("total"), *map(len, groups)])
    yield " ".join([" " * width, *(f"{state.value:>8}" for state in State)])
    for group, counts in {**groups, "total": sum(groups.values(), Counter())}.items():
        yield " ".join([f"{group:<{width}}", *(f"{counts[state]:>8}" for state in State)])
    for entry in entries:
        if entry.state is State.FAILED and entry.stored:
            yield f"failed: {entry.label}: {entry.stored.result.get('error')}"
    yield from _remaining(entries)


def _remaining(entries: list[Entry]) -> Iterator[str]:
    """Yield the time for points to do and failed points, each at the mean time of the complete ones."""
    left = sum(entry.state in (State.TO_DO, State.FAILED) for entry in entries)
    took_s = [entry.stored.seconds for entry in entries if entry.stored and not entry.stored.failed]
    if left and took_s:
        yield f"about {duration(left * sum(took_s) / len(took_s))} to measure {left} points"


def _planned(configs: Iterable[dict[str, object]]) -> Iterator[Entry]:
    """Yield the points of a sweep; the group is the variant or the I/O path."""
    local = functools.cache(environment.current_fingerprint)
    for config in configs:
        point, settings = from_config(config), Settings.from_config(config)
        stored = ResultsFolder(settings.results_dir).find(point)
        current = current_fingerprint(point, local)
        yield Entry(point.group, point.label, stored.state(current) if stored else State.TO_DO, stored)


def _measured(config: dict[str, object]) -> Iterator[Entry]:
    """Yield every result of the results folder; the group is the experiment."""
    directory, settings = Path(from_config(config).storage.directory), Settings.from_config(config)
    local = functools.cache(environment.current_fingerprint)
    for stored in ResultsFolder(settings.results_dir).records():
        relative = stored.folder.relative_to(settings.results_dir)
        code = fio.version() if stored.result.get("kind") == KIND else None
        current = current_fingerprint_of(stored, directory, code, local)
        yield Entry(relative.parts[0], str(relative), stored.state(current), stored)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
