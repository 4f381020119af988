"""Testbed `guest`: the same run inside a virtual machine with emulated NVMe SSDs. One boot serves many points."""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from dualblade.run.result_schema import failed_result
from dualblade.run.run_files import RunFile
from experiments.errors import MachineError, RunError
from experiments.guest import emulated_ssd, virtual_machine
from experiments.guest.settings import NAME, GuestSettings
from experiments.guest.virtual_machine import Hardware, VirtualMachine
from experiments.machine import environment
from experiments.machine.journal import Journal
from experiments.points.any_point import AnyPoint
from experiments.points.point import Settings
from experiments.points.sweep import CONF
from experiments.processes.channel import Message
from experiments.processes.engine import Report
from experiments.results_folder import ResultsFolder, Workspace

BOOT_TIMEOUT_S = 300.0
END_TIMEOUT_S = 5.0
# Beside the run itself, which deadline_s holds: the first run imports the engine on an emulated CPU.
HARNESS_TIMEOUT_S = 240.0


class Guest:
    """A booted guest that waits for jobs.

    Raises:
        MachineError: it does not come up.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self.machine = machine
        self._jobs = 0
        self._await_up()

    def run(self, command: list[str], timeout_s: float = 60.0) -> tuple[int, str]:
        """A command's status and output inside the guest, as root, in the folder that this process started in.

        Raises:
            RunError: it did not end in time, or the guest did not.
        """
        output = f"run-{self._jobs + 1}.log"
        answer = self.ask({"do": "run", "command": command, "output": output, "timeout_s": timeout_s}, timeout_s + 30)
        said = (self.machine.exchange / output).read_text(errors="replace")
        if answer["status"] is None:
            raise RunError(f"{command[0]} did not end within {timeout_s:g} s in the guest; it said: {said[-2000:]}")
        return answer["status"], said

    def measure(self, config: Mapping[str, Any], timeout_s: float, report: Report) -> Path:
        """Measure a point; returns the folder of its result.

        Raises:
            RunError: the guest hangs or went off.
            MachineError: no point can be measured in it.
        """
        answer = self.ask({"do": "measure", "config": dict(config)}, timeout_s, report)
        if "machine_error" in answer:
            raise MachineError(f"in the guest: {answer['machine_error']}")
        return self.machine.exchange / str(answer["folder"])

    def ask(self, job: Message, timeout_s: float, report: Report = lambda event: None) -> Message:
        """Have a job done and return its last word.

        Raises:
            RunError: the guest went off, did not answer in time, or could not do the job.
        """
        self._jobs += 1
        self.machine.jobs.send({**job, "job": self._jobs})
        ends_at = time.monotonic() + timeout_s
        while (answer := self._receive(ends_at, f"{timeout_s:g} s")).get("ended") != self._jobs:
            if "event" in answer:
                report(answer)
        if "error" in answer:
            raise RunError(f"in the guest: {answer['error']}")
        return answer

    def end(self) -> None:
        """Switch the guest off in its own way; what is left of it is killed with its machine."""
        self.machine.jobs.send({"do": "end"})
        self.machine.wait(END_TIMEOUT_S)

    def _receive(self, ends_at: float, allowed: str) -> Message:
        try:
            message = self.machine.jobs.receive(ends_at)
        except TimeoutError:
            raise RunError(f"the guest did not finish within {allowed} and was stopped; {self._last_words()}") from None
        if message is None:
            raise RunError(f"the guest went off by itself; {self._last_words()}")
        return message

    def _await_up(self) -> None:
        try:
            self._receive(time.monotonic() + BOOT_TIMEOUT_S, f"{BOOT_TIMEOUT_S:g} s of boot")
        except RunError as error:
            raise MachineError(str(error)) from None

    def _last_words(self) -> str:
        lines = self.machine.log().splitlines()
        return f"the last it wrote was: {lines[-1]}" if lines else "it wrote nothing"


class GuestTestbed:
    """Boots a guest at the first point, and another one only for a point that needs other hardware, or after a hang."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._stack = contextlib.ExitStack()
        self._guest: Guest | None = None

    def measure(self, point: AnyPoint, settings: Settings, results: ResultsFolder, report: Report) -> Mapping[str, Any]:
        """One point; good or failed, its result is put in place as on any testbed.

        Raises:
            MachineError: no guest can be booted, or none can measure anything.
        """
        assert point.guest is not None
        start = time.monotonic()
        guest = self._guest_for(point.guest)  # before the workspace: the journal is a stack, and the guest stays
        with results.workspace(settings.experiment, point, self._journal) as workspace:
            try:
                _take(guest.measure(point.config, settings.deadline_s + HARNESS_TIMEOUT_S, report), workspace)
            except RunError as error:
                _write_failure(guest, point, workspace, error)
                self._guest = None  # the next point gets a new one
            result = _complete(workspace, point, time.monotonic() - start)
            workspace.publish()
        if self._guest is None:
            self._stack.close()
        return result

    def _guest_for(self, wanted: GuestSettings) -> Guest:
        hardware = _hardware(wanted)
        if self._guest is None or self._guest.machine.hardware != hardware:
            self._end()
            self._guest = Guest(self._stack.enter_context(virtual_machine.running(hardware, self._journal)))
        return self._guest

    def _end(self) -> None:
        if self._guest is not None:
            self._guest.end()
            self._guest = None
        self._stack.close()

    def __enter__(self) -> GuestTestbed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._end()
        self._stack.close()


def _hardware(wanted: GuestSettings) -> Hardware:
    """All SSDs that conf/storage describes are in every guest, so that a sweep over them boots once."""
    ssds = emulated_ssd.described(CONF) | {wanted.ssd_name: wanted.ssd}
    return Hardware(wanted.cpus, wanted.memory_mib, ssds, wanted.poll_queues, wanted.kernel)


def _take(folder: Path, workspace: Workspace) -> None:
    """Move what a run left in the shared folder."""
    for path in folder.iterdir():
        shutil.move(path, workspace.folder / path.name)
    folder.rmdir()


def _write_failure(guest: Guest, point: AnyPoint, workspace: Workspace, error: RunError) -> None:
    """What is known of a point that took its guest along."""
    (workspace.folder / RunFile.GUEST_LOG).write_text(guest.machine.log() + "\n")
    workspace.write_json(RunFile.RESULT, failed_result(point.group, str(error)))
    workspace.write_json(RunFile.ENVIRONMENT, _known_outside(point))
    workspace.write_config(point.config)


def _complete(workspace: Workspace, point: AnyPoint, total_s: float) -> dict[str, Any]:
    """Add what the outside knows better: the code, which lies here, and the time."""
    record = json.loads((workspace.folder / RunFile.ENVIRONMENT).read_text())
    record |= environment.collect_code() | {"code_hash": point.code()}
    record["harness_s"] = {**record.get("harness_s", {}), "total": total_s}
    workspace.write_json(RunFile.ENVIRONMENT, record)
    result = workspace.read_result()
    assert result is not None
    return result


def _known_outside(point: AnyPoint) -> dict[str, Any]:
    return {
        "schema": environment.SCHEMA_VERSION,
        "started_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "config_hash": point.config_hash,
        "testbed": NAME,
        "emulated": True,
        "kernel": None,
    }
