"""Requests to end (Ctrl-C, SIGTERM, SIGHUP): a harness, and a harness that it started, undo their changes first."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import FrameType

from experiments.processes.engine import enter

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def undo_on_request() -> None:
    """Make SIGTERM and SIGHUP exceptions, as Ctrl-C is one, so that all steps are undone."""
    for name in _heeded():
        if name != signal.SIGINT:
            signal.signal(name, _end)


def run_python(arguments: Sequence[str]) -> int:
    """Run `python ARGUMENTS` and return its exit status, above 128 for a signal; requests to end are passed on to it.

    It has a session of its own, so that Ctrl-C reaches it once, from us. Should we be killed, the kernel asks it.

    Raises:
        SystemExit: we were asked to end; the child has tidied up and is gone.
    """
    command = [*enter(None, signal.SIGTERM), sys.executable, *arguments]
    child = subprocess.Popen(command, start_new_session=True)
    with _passed_on(child) as requests:
        status = _wait(child)
    if requests:
        raise SystemExit(128 + requests[0])
    return status if status >= 0 else 128 - status


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait in steps: Python handles a signal that comes just before a wait only after the wait."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(timeout=1.0)


@contextlib.contextmanager
def _passed_on(child: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Pass requests to end on to the child, each kind once, and list them, while the block waits for it."""
    requests: list[int] = []

    def pass_on(signum: int, frame: FrameType | None) -> None:
        if signum not in requests:
            requests.append(signum)
            child.send_signal(signum)

    before = {name: signal.signal(name, pass_on) for name in _heeded()}
    try:
        yield requests
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _heeded() -> list[signal.Signals]:
    """Return the requests that the user does not ignore, for example by nohup."""
    return [name for name in REQUESTS if signal.getsignal(name) is not signal.SIG_IGN]


def _end(signum: int, frame: FrameType | None) -> None:
    """Raise once: timeout(1) sends two signals, and the second must not interrupt the undo."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    raise SystemExit(128 + signum)
