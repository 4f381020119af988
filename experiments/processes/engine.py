"""The engine's process: started in its cgroup, controlled by JSON lines, killed at the latest with the harness."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from experiments.errors import RunError

Event = dict[str, Any]
Report = Callable[[Event], None]

PROJECT = Path(__file__).resolve().parents[2]
ENTER = PROJECT / "dualblade/linux/enter_cgroup.py"
EXIT_TIMEOUT_S = 30.0


class Process(Protocol):
    """A started engine, leader of a process group; subprocess.Popen is one."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal; raises subprocess.TimeoutExpired."""


Launch = Callable[[list[str], "Path | None", IO[bytes]], Process]


def execute(
    arguments: list[str], procs: Path | None, log: IO[bytes], *, module: str = "dualblade", folders: Sequence[Path] = ()
) -> Process:
    """Start `python -m MODULE ARGUMENTS` inside the cgroup of `procs`. Modules are also searched in `folders`."""
    return subprocess.Popen(
        [*enter(procs), sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment(folders),
        start_new_session=True,  # Ctrl-C is for the harness, which ends the engine itself
    )


class Engine:
    """A run of the engine as its own process; all waiting ends at `deadline_s` after its start."""

    def __init__(
        self, arguments: list[str], procs: Path | None, log: IO[bytes], deadline_s: float, launch: Launch
    ) -> None:
        self._deadline_s = deadline_s
        self._ends_at = time.monotonic() + deadline_s
        self._log = log
        self._process = launch(arguments, procs, log)
        self.last_event: Event = {}

    def wait_for(self, name: str) -> Event | None:
        """Return the next event of this name, or None if the engine ended before it."""
        return next((event for event in self.events() if event.get("event") == name), None)

    def events(self) -> Iterator[Event]:
        """Yield the events of the engine until it closes its output; other lines go to the log.

        Raises:
            RunError: the deadline passed.
        """
        for line in self._lines():
            event = _parse(line)
            if event is None:
                self._log.write(line + b"\n")
            else:
                self.last_event = event
                yield event

    def send(self, event: Event) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # an engine that is gone is seen by its silence
            self._process.stdin.write(json.dumps(event).encode() + b"\n")
            self._process.stdin.flush()

    def exit_code(self) -> int:
        """Wait for the end of an engine that closed its output; a negative code is the signal that killed it."""
        try:
            return self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise RunError(f"the engine closed its output but did not end within {EXIT_TIMEOUT_S:g} s") from None

    def kill(self) -> None:
        """End the engine and everything that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _lines(self) -> Iterator[bytes]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                if not selector.select(max(0.0, self._ends_at - time.monotonic())):
                    raise RunError(self._late())
                chunk = os.read(descriptor, 65536)
                if not chunk:
                    return
                *lines, pending = (pending + chunk).split(b"\n")
                yield from lines

    def _late(self) -> str:
        said = " ".join(f"{key} {value}" for key, value in self.last_event.items() if key != "event") or "nothing"
        return (
            f"the engine did not finish within deadline_s={self._deadline_s:g} s and was stopped; the last it reported "
            f"was {self.last_event.get('event', '')} {said}; raise deadline_s if the storage is just slow"
        )


@contextlib.contextmanager
def running(
    arguments: list[str], procs: Path | None, log_path: Path, deadline_s: float, launch: Launch = execute
) -> Iterator[Engine]:
    """Yield a started engine, and kill it when the block is left."""
    with open(log_path, "wb", buffering=0) as log:
        engine = Engine(arguments, procs, log, deadline_s, launch)
        try:
            yield engine
        finally:
            engine.kill()


def _parse(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def enter(procs: Path | None, at_our_death: signal.Signals = signal.SIGKILL) -> list[str]:
    """Return the prefix that starts a command in the cgroup of `procs` and ends it by that signal with this process."""
    return [sys.executable, "-I", "-S", str(ENTER), str(os.getpid()), str(int(at_our_death)), str(procs or "-")]


def environment(folders: Sequence[Path] = ()) -> dict[str, str]:
    """Return the variables of an engine: it is the one beside this harness, whatever the current folder is."""
    paths = [str(PROJECT), *map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
