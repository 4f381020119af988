"""Requests to end, by Ctrl-C, SIGTERM or SIGHUP: what was set up is undone first, also by a harness that we started."""

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
    """Exit status of `python ARGUMENTS`, above 128 for a signal that killed it; it is asked to end when we are.

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
    """In steps: Python hears a signal that comes just before a wait only when the wait is over."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(timeout=1.0)


@contextlib.contextmanager
def _passed_on(child: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Requests to end go to the child, each kind once, and are listed, while we wait for it."""
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
    """What a user had ignored, by nohup say, stays ignored."""
    return [name for name in REQUESTS if signal.getsignal(name) is not signal.SIG_IGN]


def _end(signum: int, frame: FrameType | None) -> None:
    """Once: timeout(1) sends two, and the second must not cut the undoing short."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    raise SystemExit(128 + signum)
