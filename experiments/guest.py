"""Testbed `guest`: the same run inside a virtual machine with emulated NVMe SSDs. One boot serves many points."""

from __future__ import annotations

import time

from experiments.channel import Message
from experiments.errors import MachineError, RunError
from experiments.virtual_machine import VirtualMachine

BOOT_TIMEOUT_S = 180.0
END_TIMEOUT_S = 5.0


class Guest:
    """A booted guest that waits for jobs."""

    def __init__(self, machine: VirtualMachine) -> None:
        self.machine = machine
        self._runs = 0
        self._await_up()

    def run(self, command: list[str], timeout_s: float = 60.0) -> tuple[int, str]:
        """A command's status and output inside the guest, as root, in the checkout's folder.

        Raises:
            RunError: it did not end in time, or the guest did not.
        """
        self._runs += 1
        output = f"run-{self._runs}.log"
        answer = self.ask({"do": "run", "command": command, "output": output, "timeout_s": timeout_s}, timeout_s + 30)
        said = (self.machine.exchange / output).read_text(errors="replace")
        if answer["status"] is None:
            raise RunError(f"{command[0]} did not end within {timeout_s:g} s in the guest; it said: {said[-2000:]}")
        return answer["status"], said

    def ask(self, job: Message, timeout_s: float) -> Message:
        """Have a job done and return its last word.

        Raises:
            RunError: the guest went off, did not answer in time, or could not do the job.
        """
        self.machine.jobs.send(job)
        ends_at = time.monotonic() + timeout_s
        while True:
            answer = self._receive(ends_at, f"a job, {job['do']},")
            if answer["event"] == "ended":
                break
        if "error" in answer:
            raise RunError(f"in the guest: {answer['error']}")
        return answer

    def end(self) -> None:
        """Switch the guest off in its own way; what is left of it is killed with its machine."""
        self.machine.jobs.send({"do": "end"})
        self.machine.wait(END_TIMEOUT_S)

    def _receive(self, ends_at: float, what: str) -> Message:
        try:
            message = self.machine.jobs.receive(ends_at)
        except TimeoutError:
            raise RunError(f"the guest did not finish {what} in time; its last words: {self._last_words()}") from None
        if message is None:
            raise RunError(f"the guest went off during {what} its last words: {self._last_words()}")
        return message

    def _await_up(self) -> None:
        try:
            self._receive(time.monotonic() + BOOT_TIMEOUT_S, "its boot")
        except RunError as error:
            raise MachineError(str(error)) from None

    def _last_words(self) -> str:
        return " | ".join(self.machine.log().splitlines()[-5:]) or "none"
