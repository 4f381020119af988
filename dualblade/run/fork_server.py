"""Engines without the start: a process that has imported everything forks a run for each request.

For machines on which importing takes longer than a run, an emulated one above all. A request comes over a socket as
one message, {"arguments": [...], "procs": PATH or null}, with four descriptors: the run's standard input, output and
error, and a socket on which its process number and later its exit code are told. The server ends when its own socket
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
    """Answer requests until the other end is closed."""
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
    with contextlib.suppress(OSError):  # parent and child both, whoever is first
        os.setpgid(pid, pid)
    control.sendall(json.dumps({"pid": pid}).encode() + b"\n")
    return pid, control


def _become(
    request: dict[str, Any], descriptors: list[int], server_pid: int, run: Callable[[list[str]], int]
) -> NoReturn:
    """Be the run, in its cgroup before anything is touched; never returns into the server's loop."""
    code = 1
    try:
        die_with(server_pid, signal.SIGKILL)
        os.setpgid(0, 0)
        if request["procs"]:
            join(request["procs"])
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        # Memory shared with the server is charged to the run when it is written, as every object is whose references
        # are counted. The collector visits them all, so that this growth comes before the limit and not after.
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
    """Tell a run's exit code, negative for a signal as subprocess has it."""
    _, status = os.waitpid(pid, 0)
    os.close(watch)
    with control:
        try:
            control.sendall(json.dumps({"exit": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
        except OSError:  # nobody waits for it
            return
