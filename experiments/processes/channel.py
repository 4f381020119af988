"""JSON lines over a connected socket: messages between the harness and a guest, or QEMU's monitor."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import Any

Message = dict[str, Any]


class Channel:
    """One end of a connection; QEMU holds the other end until it ends."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pending = b""

    def send(self, message: Message) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # seen by its silence
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, ends_at: float) -> Message | None:
        """Return the next message, or None when the other end is closed; other lines are ignored.

        Raises:
            TimeoutError: nothing came until `ends_at` of time.monotonic().
        """
        while True:
            line, separator, rest = self._pending.partition(b"\n")
            if separator:
                self._pending = rest
                if (message := _parse(line)) is not None:
                    return message
                continue
            self._connection.settimeout(max(0.001, ends_at - time.monotonic()))
            try:
                chunk = self._connection.recv(65536)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                return None
            self._pending += chunk

    def close(self) -> None:
        self._connection.close()


def _parse(line: bytes) -> Message | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
