"""Engines forked from a server that has imported everything; the protocol is in dualblade.run.fork_server."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dualblade.config.run import WorkloadSource
from dualblade.linux.files import last_line
from experiments.errors import MachineError
from experiments.processes.channel import Channel
from experiments.processes.engine import Launch, enter, environment

FORK_TIMEOUT_S = 30.0
NEVER_S = 1e9


class ForkedProcess:
    """A run of the engine as the server's child, with a part of subprocess.Popen's interface."""

    def __init__(self, server: socket.socket, arguments: list[str], procs: Path | None, log: IO[bytes]) -> None:
        ours, theirs = socket.socketpair()
        input_end, input_ours = os.pipe()
        output_ours, output_end = os.pipe()
        request = json.dumps({"arguments": arguments, "procs": None if procs is None else str(procs)}).encode()
        socket.send_fds(server, [request], [input_end, output_end, log.fileno(), theirs.fileno()])
        for descriptor in (input_end, output_end):
            os.close(descriptor)
        theirs.close()
        self.stdin: IO[bytes] | None = os.fdopen(input_ours, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(output_ours, "rb")
        self._control = Channel(ours)
        self._code: int | None = None
        self.pid = self._ask("pid", FORK_TIMEOUT_S)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raises subprocess.TimeoutExpired."""
        if self._code is None:
            self._code = self._ask("exit", NEVER_S if timeout is None else timeout)
            self._control.close()
        return self._code

    def _ask(self, name: str, timeout_s: float) -> int:
        try:
            message = self._control.receive(time.monotonic() + timeout_s)
        except TimeoutError:
            raise subprocess.TimeoutExpired("dualblade --serve", timeout_s) from None
        if message is None:
            raise MachineError("the server that forks engines ended; see its log")
        return int(message[name])


@contextlib.contextmanager
def fork_server(folder: Path, source: WorkloadSource, deadline_s: float) -> Iterator[Launch]:
    """Start a server and yield how to start an engine by it. Its log lies in `folder`.

    Raises:
        MachineError: the engine cannot be imported here.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log_path = folder / f"server-{source}.log"
    with ours, open(log_path, "wb") as log:
        arguments = [sys.executable, "-P", "-m", "dualblade", "--serve", str(theirs.fileno())]
        server = subprocess.Popen(
            [*enter(None), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        try:
            assert server.stdout is not None
            if not server.stdout.readline():
                raise MachineError(f"the engine does not start ({last_line(log_path) or 'it says nothing'})")
            yield functools.partial(ForkedProcess, ours)
        finally:
            server.kill()
            server.wait()
