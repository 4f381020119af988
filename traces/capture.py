"""Runs a bpftrace script beside a workload: ready before the workload starts, ended cleanly, its text in a file.

Needs root. The tracer sees tracefs in a mount namespace of its own where the machine has not mounted it, so that there
is nothing to undo; the kernel removes its probes with the process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from traces import devices
from traces.decode import header
from traces.errors import TraceError

SCRIPTS = Path(__file__).with_name("scripts")
TRACEFS = Path("/sys/kernel/tracing")
READY = b"READY"
STOP_TIMEOUT_S = 60.0
RETRY_S = 0.5
EPOLL_WAIT = ("232", "281", "22")  # epoll_wait and epoll_pwait on x86-64, epoll_pwait on arm64
POLL_S = 0.02
_SKIPPED = re.compile(r"^recursion_misses:\s*(\d+)$", re.MULTILINE)
DRAIN_S = 0.3  # for what is on its way to the tracer: at SIGINT it looks only where it has been woken up for

# Short strings, since each print copies its strings whole, and room for all that can be in flight.
SETTINGS = {"BPFTRACE_STRLEN": "32", "BPFTRACE_MAP_KEYS_MAX": "65536"}


@dataclass
class Tracer:
    """A bpftrace process whose probes are in place. Seconds it took to attach them: `attach_s`."""

    process: subprocess.Popen[bytes]
    writer: subprocess.Popen[bytes]
    raw: Path
    log: Path
    disks: Sequence[str]
    attach_s: float
    completed: int

    def stop(self) -> None:
        """End the trace: what was traced until now is printed, then the kernel's count.

        Raises:
            TraceError: the tracer had ended before, or does not end.
        """
        if self.process.poll() is not None:
            raise TraceError(f"the tracer ended before the run did: {_last_line(self.log)}; run the point again")
        completed = completed_commands(self.disks) - self.completed
        self.process.send_signal(signal.SIGCONT)  # the probes see it and fall silent
        time.sleep(DRAIN_S)
        skipped = skipped_probes(self.process.pid)
        self._interrupt()
        self.writer.wait()
        with open(self.raw, "ab") as raw:
            raw.write(b"#completed %d\n#skipped %d\n" % (completed, skipped))

    def _interrupt(self) -> None:
        """SIGINT until it is noticed: bpftrace misses one that comes between two waits for events."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        self.process.send_signal(signal.SIGINT)
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(RETRY_S)
                return
            if _waits_for_events(self.process.pid):
                self.process.send_signal(signal.SIGINT)
        raise TraceError(f"the tracer did not end within {STOP_TIMEOUT_S:g} s; run the point again")


@contextlib.contextmanager
def tracing(
    script: str,
    raw: Path,
    arguments: Sequence[int] = (),
    *,
    disks: Sequence[str],
    log: Path,
    buffer_pages: int = 4096,
    attach_timeout_s: float = 60.0,
    prefix: Sequence[str] = (),
) -> Iterator[Tracer]:
    """A tracer that is ready, writing to `raw`; gone when the block is left, however it is left.

    `script` names a file of this package without its ending, `arguments` are its positional parameters, and `prefix`
    is put before the command, to have it die with its parent, say. `disks` are those traced, by name: their own
    statistics are held against the trace. What bpftrace complains about goes to `log`.
    `buffer_pages` is per CPU.

    Raises:
        TraceError: it cannot be started here, or is not ready in time.
    """
    check_available()
    start = time.monotonic()
    with open(raw, "wb") as out, open(log, "wb") as err:
        out.write(header(script, devices.describe()))
        out.flush()
        process = subprocess.Popen(
            [*prefix, *_in_tracefs(), "bpftrace", "-B", "full", str(SCRIPTS / f"{script}.bt"), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
            env={**os.environ, **SETTINGS, "BPFTRACE_PERF_RB_PAGES": str(buffer_pages)},
            start_new_session=True,  # Ctrl-C is for the harness, which ends the tracer itself
        )
        # Through a pipe, since libc's buffer has the size that the file likes: 4 KiB for a pipe, 1 MiB for some files.
        writer = subprocess.Popen(["cat"], stdin=process.stdout, stdout=out, start_new_session=True)
    assert process.stdout is not None
    process.stdout.close()
    try:
        _await_ready(process, raw, log, start + attach_timeout_s)
        yield Tracer(process, writer, raw, log, disks, time.monotonic() - start, completed_commands(disks))
    finally:
        process.kill()
        process.wait()
        writer.wait()


def completed_commands(disks: Sequence[str]) -> int:
    """Reads, writes and discards that disks have completed so far (Linux, Documentation/block/stat.rst).

    NVMe passthrough is not counted there before Linux 6.13.
    """
    statistics = [(Path("/sys/block") / disk / "stat").read_text().split() for disk in disks]
    return sum(int(numbers[field]) for numbers in statistics for field in (0, 4, 11))


def skipped_probes(pid: int) -> int:
    """Times that the kernel skipped a probe of this process, since one ran on the CPU already.

    In the fdinfo of each BPF program (Linux, kernel/bpf/syscall.c: bpf_prog_show_fdinfo): those of functions from
    Linux 5.12 on, those of tracepoints from 6.7 on.
    """
    said = "".join(path.read_text() for path in Path(f"/proc/{pid}/fdinfo").iterdir())
    return sum(int(times) for times in _SKIPPED.findall(said))


def check_available() -> None:
    """Raise, with the cure, where no trace can be taken."""
    if shutil.which("bpftrace") is None:
        raise TraceError("a trace needs bpftrace, which is not installed; install it, or set trace=none")
    if os.geteuid() != 0:
        raise TraceError("a trace needs root; run as root, or set trace=none")


def _in_tracefs() -> list[str]:
    """The prefix that gives a command tracefs, if it is not mounted."""
    if (TRACEFS / "events").exists():
        return []
    mount = f'mount -t tracefs none {TRACEFS} && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh"]


def _await_ready(process: subprocess.Popen[bytes], raw: Path, log: Path, deadline: float) -> None:
    while not _is_ready(raw):
        if process.poll() is not None:
            raise TraceError(f"the tracer does not start: {_last_line(log)}; set trace=none to measure without it")
        if time.monotonic() > deadline:
            raise TraceError("the tracer was not ready in time; raise trace.attach_timeout_s, or set trace=none")
        time.sleep(POLL_S)


def _is_ready(raw: Path) -> bool:
    with open(raw, "rb") as file:
        file.readline()
        return READY in file.read(4096).split(b"\n")


def _waits_for_events(pid: int) -> bool:
    """Whether a process sleeps in epoll_wait."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/syscall").read_text().split()[0] in EPOLL_WAIT
    return False


def _last_line(path: Path) -> str:
    """What bpftrace complained about last, without the picture of the place; RLIMIT_MEMLOCK, harmless, comes first."""
    lines = path.read_text(errors="replace").strip().splitlines()
    complaints = [line for line in lines if "ERROR" in line]
    return (complaints or lines or ["it says nothing"])[-1]
