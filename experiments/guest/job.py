"""The harness's job inside a guest: prepare its SSDs, then do what the harness outside asks for, line by line.

Jobs come and answers go over a virtio port; files are left in the shared folder. When the harness is gone, so is the
line, and the guest goes off.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.errors import MachineError
from experiments.guest.virtual_machine import EXCHANGE, HARDWARE, MOUNTS, PORT
from experiments.local import LocalTestbed
from experiments.machine.journal import Journal
from experiments.points.any_point import from_config
from experiments.points.point import Settings
from experiments.processes.channel import Message
from experiments.processes.engine import Report
from experiments.processes.fork_client import fork_server
from experiments.results_folder import ResultsFolder

PORTS = Path("/sys/class/virtio-ports")
CONTROLLERS = Path("/sys/class/nvme")
MODULES = ("nvme", "ext4", "crc32c_generic")
DEVICE_TIMEOUT_S = 20.0
RESULTS = "results"
POLL_QUEUES = Path("/sys/module/nvme/parameters/poll_queues")
LRU = Path("/sys/kernel/mm/lru_gen/enabled")
TRACEFS = "/sys/kernel/tracing"
DEBUGFS = "/sys/kernel/debug"


class Line:
    """The guest's end of the line to the harness."""

    def __init__(self, device: Path) -> None:
        self._port = os.open(device, os.O_RDWR | os.O_CLOEXEC)  # the kernel lets one opener in

    def send(self, event: Mapping[str, Any]) -> None:
        text = json.dumps(event).encode() + b"\n"
        while text:
            text = text[os.write(self._port, text) :]

    def jobs(self) -> Iterator[Message]:
        """Yield jobs until the harness closes the line: a read of the port then returns nothing."""
        pending = b""
        while chunk := os.read(self._port, 65536):
            *lines, pending = (pending + chunk).split(b"\n")
            yield from map(json.loads, lines)


def main() -> None:
    hardware = json.loads((EXCHANGE / HARDWARE).read_text())
    prepare_machine(hardware["ssds"])
    line = Line(Path("/dev", _port().name))
    line.send({"event": "up", "kernel": os.uname().release})
    with contextlib.ExitStack() as stack:
        measurement = Measurement(line.send, read_back(hardware["provenance"]), stack)
        actions: dict[str, Callable[..., Message]] = {"run": run, "measure": measurement.measure}
        for job in line.jobs():
            if job["do"] == "end":
                break
            line.send(_answer(actions, job))
    power_off()


def read_back(outside: Mapping[str, Any]) -> dict[str, Any]:
    """Return what results state about the guest: facts known outside, and the poll queues of its driver."""
    return {"guest": {**outside["guest"], "poll_queues": int(POLL_QUEUES.read_text())}}


def known_outside() -> dict[str, Any]:
    """Return no facts on the code: the harness outside adds them, since git takes seconds over a shared folder."""
    return {}


class Measurement:
    """Measures points as on any machine; engines are forked, and the kernel's LRU is set."""

    def __init__(self, report: Report, provenance: Mapping[str, Any], stack: contextlib.ExitStack) -> None:
        self._report = report
        journal = Journal(MOUNTS / "journal.json")
        emulated = {"emulated": True, **provenance}
        self._testbed = LocalTestbed(journal, MOUNTS, stack, fork_server, emulated, code=known_outside)

    def measure(self, config: dict[str, Any]) -> Message:
        """Measure the point and return the folder with its result in the shared folder."""
        config["results_dir"] = str(EXCHANGE / RESULTS)
        point, settings = from_config(config), Settings.from_config(config)
        assert point.guest is not None
        results = ResultsFolder(settings.results_dir)
        try:
            set_lru(point.guest.lru)
            self._testbed.measure(point, settings, results, self._report)
        except MachineError as error:
            return {"machine_error": str(error)}
        return {"folder": str(results.folder(settings.experiment, point).relative_to(EXCHANGE))}


def set_lru(lru: str) -> None:
    """Have the kernel reclaim memory by this LRU (Linux, admin-guide/mm/multigen_lru.rst).

    Raises:
        MachineError: it has no choice, or does not follow.
    """
    wanted = lru == "multigen"
    try:
        LRU.write_text("y" if wanted else "n")
        in_force = int(LRU.read_text(), 16) != 0
    except OSError as error:
        raise MachineError(f"testbed.lru={lru} cannot be set on kernel {os.uname().release}: {error}") from None
    if in_force != wanted:
        raise MachineError(f"testbed.lru={lru} was set and {LRU} reads {LRU.read_text().strip()}; use the other")


def _answer(actions: Mapping[str, Callable[..., Message]], job: Message) -> Message:
    """Return the result of a job, or why it failed; the loop continues in both cases."""
    action, number = job.pop("do"), job.pop("job")
    try:
        return {"ended": number, **actions[action](**job)}
    except Exception as error:
        traceback.print_exc()
        return {"ended": number, "error": f"{type(error).__name__}: {error}"}


def run(command: list[str], output: str, timeout_s: float) -> Message:
    """Run a command and return its status, None after its deadline; its output goes to a file in the shared folder."""
    with open(EXCHANGE / output, "wb") as log:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return {"status": None}
    return {"status": done.returncode}


def prepare_machine(ssds: list[dict[str, str]]) -> None:
    """Load drivers, mount tracefs, and mount the SSDs' file systems in the folders that their configuration names."""
    subprocess.run(["modprobe", "-a", *MODULES], check=True)
    for kind, folder in (("tracefs", TRACEFS), ("debugfs", DEBUGFS)):
        if not os.path.ismount(folder):
            subprocess.run(["mount", "-t", kind, kind, folder], check=False)
    for ssd in ssds:
        mount_ssd(ssd["serial"], Path(ssd["directory"]))


def mount_ssd(serial: str, directory: Path) -> None:
    """Mount partition 1 of the SSD with this serial."""
    partition = partition_of(serial, 1)
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "ext4", str(partition), str(directory)], check=True)


def partition_of(serial: str, number: int) -> Path:
    """Return the device node of a partition of the SSD with this serial; wait until the kernel has found it."""
    ends_at = time.monotonic() + DEVICE_TIMEOUT_S
    while True:
        for controller in CONTROLLERS.glob("nvme*"):
            node = Path("/dev", f"{controller.name}n1p{number}")
            with contextlib.suppress(OSError):
                if (controller / "serial").read_text().strip() == serial and node.exists():
                    return node
        if time.monotonic() > ends_at:
            raise RuntimeError(f"the guest has no SSD {serial} with a partition {number}")
        time.sleep(0.1)


def power_off() -> None:
    """Switch the guest off at once; nothing in it has to be kept."""
    os.sync()
    Path("/proc/sysrq-trigger").write_text("o")
    time.sleep(60)


def _port() -> Path:
    return next(port for port in PORTS.glob("vport*") if (port / "name").read_text().strip() == PORT)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        power_off()
