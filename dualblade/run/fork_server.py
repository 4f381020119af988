"""Fork server: a process that has imported everything forks a run for each request.

It serves machines where the imports take longer than a run, above all emulated ones. A request comes over a socket as
one message, {"arguments": [...], "procs": PATH or null}, with four descriptors: the run's standard input, output and
error, and a socket for its process number and later its exit code. The server ends when its own socket
is closed, and every run ends with the server.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from dualblade.linux.enter_cgroup import die_with, join

MAX_REQUEST_BYTES = 65536
DESCRIPTORS = 4


def serve(connection: socket.socket, run: Callable[[list[str]], int]) -> None:
    """Fork a run for each request until the other end is closed."""
    children: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not connection:
                    selector.unregister(key.fileobj)
                    _report(*children.pop(key.fd), key.fd)
                    continue
                request, descriptors, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, DESCRIPTORS)
                if not request:
                    return
                pid, control = _fork(json.loads(request), descriptors, run)
                watch = os.pidfd_open(pid)
                children[watch] = pid, control
                selector.register(watch, selectors.EVENT_READ)


def _fork(
    request: dict[str, Any], descriptors: list[int], run: Callable[[list[str]], int]
) -> tuple[int, socket.socket]:
    control = socket.socket(fileno=descriptors.pop())
    server_pid = os.getpid()
    pid = os.fork()
    if not pid:
        _become(request, descriptors, server_pid, run)
    for descriptor in descriptors:
        os.close(descriptor)
    with contextlib.suppress(OSError):  # both parent and child do it, so that neither has to wait
        os.setpgid(pid, pid)
    control.sendall(json.dumps({"pid": pid}).encode() + b"\n")
    return pid, control


def _become(
    request: dict[str, Any], descriptors: list[int], server_pid: int, run: Callable[[list[str]], int]
) -> NoReturn:
    """Become the run: enter its cgroup before any memory is touched; never return into the server's loop."""
    code = 1
    try:
        die_with(server_pid, signal.SIGKILL)
        os.setpgid(0, 0)
        if request["procs"]:
            join(request["procs"])
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        # Memory shared with the server is charged to the run when it is written, and counting references writes every
        # object. The collector visits them all now, so that memory grows before the limit is set, not after.
        gc.collect()
        code = run(request["arguments"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _report(pid: int, control: socket.socket, watch: int) -> None:
    """Send a run's exit code, negative for a signal as in subprocess."""
    _, status = os.waitpid(pid, 0)
    os.close(watch)
    with control:
        try:
            control.sendall(json.dumps({"exit": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
        except OSError:  # the harness has gone
            return
