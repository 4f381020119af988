"""QEMU's monitor (QMP): changes the hardware of a running machine, for tests of faults."""

from __future__ import annotations

import time
from typing import Any

from experiments.errors import MachineError
from experiments.processes.channel import Channel

ANSWER_TIMEOUT_S = 20.0


class Monitor:
    """Commands of QEMU's machine protocol, one at a time (qemu/docs/interop/qmp-spec)."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._introduced = False

    def execute(self, command: str, **arguments: Any) -> Any:
        """Run a command and return QEMU's answer.

        Raises:
            MachineError: QEMU refuses, or does not answer.
        """
        if not self._introduced:
            self._introduced = True
            self.execute("qmp_capabilities")
        self._channel.send({"execute": command, "arguments": arguments})
        ends_at = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            try:
                message = self._channel.receive(ends_at)
            except TimeoutError:
                message = None
            if message is None:
                raise MachineError(f"QEMU does not answer {command}; the guest is to be started again")
            if "error" in message:
                raise MachineError(f"QEMU refuses {command}: {message['error']['desc']}")
            if "return" in message:  # greeting and events are neither
                return message["return"]

    def unplug(self, drive: str) -> None:
        """Ask the guest to release an SSD, as the button beside a slot does; the SSD is gone seconds later."""
        self.execute("device_del", id=f"{drive}-ctrl")

    def throttle(self, drive: str, read_bytes_per_s: int, write_bytes_per_s: int) -> None:
        """Limit an SSD from now on; 0 is no limit."""
        rates = {"bps_rd": read_bytes_per_s, "bps_wr": write_bytes_per_s}
        rest = dict.fromkeys(("bps", "iops", "iops_rd", "iops_wr"), 0)
        self.execute("block_set_io_throttle", device=drive, **rates, **rest)
