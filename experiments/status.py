"""What is done, failed, stale and to do: `python -m experiments.status [experiment=NAME] [OVERRIDES]`.

With an experiment, or overrides as for `experiments.run`, its points; without, all results that there are.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dualblade.errors import DualBladeError
from experiments.fingerprint import current_fingerprint, current_fingerprint_of
from experiments.hydra_errors import COMPLAINTS, sentence
from experiments.machine import environment
from experiments.points.io_point import KIND
from experiments.points.kinds import from_config
from experiments.points.point import Settings
from experiments.points.sweep import compose_points
from experiments.processes import fio
from experiments.progress import duration
from experiments.results import Record, Results, State


class Entry(NamedTuple):
    """A point and how it stands."""

    group: str
    label: str
    state: State
    record: Record | None


def main(arguments: list[str]) -> int:
    """Print the status; 0 unless the configuration cannot be used."""
    overrides = [f"+{argument}" if argument.startswith("experiment=") else argument for argument in arguments]
    try:
        configs = compose_points(overrides)
        planned = len(configs) > 1 or any(not override.startswith("results_dir=") for override in overrides)
        entries = list(_planned(configs) if planned else _measured(configs[0]))
    except (*COMPLAINTS, DualBladeError) as error:
        print(f"experiments.status: {sentence(error)}", file=sys.stderr)
        return 1
    print("\n".join(table(entries)))
    return 0


def table(entries: list[Entry]) -> Iterator[str]:
    """One line per group, the failures with their sentences, and the time that is left."""
    groups: dict[str, Counter[State]] = {}
    for entry in entries:
        groups.setdefault(entry.group, Counter())[entry.state] += 1
    width = max([len("total"), *map(len, groups)])
    yield " ".join([" " * width, *(f"{state.value:>8}" for state in State)])
    for group, counts in {**groups, "total": sum(groups.values(), Counter())}.items():
        yield " ".join([f"{group:<{width}}", *(f"{counts[state]:>8}" for state in State)])
    for entry in entries:
        if entry.state is State.FAILED and entry.record:
            yield f"failed: {entry.label}: {entry.record.result.get('error')}"
    yield from _remaining(entries)


def _remaining(entries: list[Entry]) -> Iterator[str]:
    """Points to do and failed ones, at the mean time of those that are done."""
    left = sum(entry.state in (State.TO_DO, State.FAILED) for entry in entries)
    took_s = [entry.record.seconds for entry in entries if entry.record and not entry.record.failed]
    if left and took_s:
        yield f"about {duration(left * sum(took_s) / len(took_s))} to measure {left} points"


def _planned(configs: Iterable[dict[str, object]]) -> Iterator[Entry]:
    """Points of a sweep, by variant."""
    local = functools.cache(environment.current_fingerprint)
    for config in configs:
        point, settings = from_config(config), Settings.from_config(config)
        record = Results(settings.results_dir).find(point)
        current = current_fingerprint(point, local)
        yield Entry(point.group, point.label, record.state(current) if record else State.TO_DO, record)


def _measured(config: dict[str, object]) -> Iterator[Entry]:
    """Whatever the results folder holds, by experiment."""
    directory, settings = Path(from_config(config).storage.directory), Settings.from_config(config)
    local = functools.cache(environment.current_fingerprint)
    for record in Results(settings.results_dir).records():
        relative = record.folder.relative_to(settings.results_dir)
        code = fio.version() if record.result.get("kind") == KIND else None
        current = current_fingerprint_of(record, directory, code, local)
        yield Entry(relative.parts[0], str(relative), record.state(current), record)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
