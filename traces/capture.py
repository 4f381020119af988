"""Run a bpftrace script beside a workload and keep its text. The tracer is ready before the workload starts.

It needs root. If the machine has not mounted tracefs, the tracer mounts it in its own mount namespace, so nothing has
to be undone. The kernel removes the probes when the process ends, in whatever way it ends.
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
DRAIN_S = 0.3  # for events on their way: after SIGINT the tracer reads only buffers that woke it up

# Short strings, because each print copies whole strings; room for all commands that can be in flight.
SETTINGS = {"BPFTRACE_STRLEN": "32", "BPFTRACE_MAP_KEYS_MAX": "65536"}


@dataclass
class Tracer:
    """A bpftrace process whose probes are attached; attaching took `attach_s` seconds."""

    process: subprocess.Popen[bytes]
    writer: subprocess.Popen[bytes]
    raw: Path
    log: Path
    disks: Sequence[str]
    attach_s: float
    completed: int

    def stop(self) -> None:
        """End the trace: the tracer prints what it has, then the kernel's count.

        Raises:
            TraceError: the tracer had ended before, or does not end.
        """
        if self.process.poll() is not None:
            raise TraceError(f"the tracer ended before the run did: {_last_line(self.log)}; run the point again")
        completed = completed_commands(self.disks) - self.completed
        self.process.send_signal(signal.SIGCONT)  # the probes see it and print nothing more
        time.sleep(DRAIN_S)
        skipped = skipped_probes(self.process.pid)
        self._interrupt()
        self.writer.wait()
        with open(self.raw, "ab") as raw:
            raw.write(b"#completed %d\n#skipped %d\n" % (completed, skipped))

    def _interrupt(self) -> None:
        """Send SIGINT until bpftrace ends: it misses a signal that comes between two waits for events."""
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
    """Yield a tracer that is ready and writes to `raw`; it is killed when the block is left.

    `script` names a file of scripts/ without its ending, and `arguments` are its positional parameters. `prefix` is put
    before the command, for example to end it with its parent. `disks` names the traced disks, whose own statistics are
    compared with the trace. Messages of bpftrace go to `log`. `buffer_pages` is per CPU.

    Raises:
        TraceError: it cannot be started here, or is not ready in time.
    """
    check_available()
    start = time.monotonic()
    with open(raw, "wb") as out, open(log, "wb") as err:
        out.write(header(script, devices.read_devices()))
        out.flush()
        process = subprocess.Popen(
            [*prefix, *_in_tracefs(), "bpftrace", "-B", "full", str(SCRIPTS / f"{script}.bt"), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
            env={**os.environ, **SETTINGS, "BPFTRACE_PERF_RB_PAGES": str(buffer_pages)},
            start_new_session=True,  # Ctrl-C reaches only the harness, which ends the tracer
        )
        # Through a pipe: libc takes its buffer's size from the file: 4 KiB for a pipe, 1 MiB for some files.
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
    """Return the reads, writes and discards that disks have completed (Linux, Documentation/block/stat.rst).

    Before Linux 6.13 they do not include NVMe passthrough.
    """
    statistics = [(Path("/sys/block") / disk / "stat").read_text().split() for disk in disks]
    return sum(int(numbers[field]) for numbers in statistics for field in (0, 4, 11))


def skipped_probes(pid: int) -> int:
    """Return how often the kernel skipped a probe of this process because another one ran on the same CPU.

    The fdinfo of each BPF program has it (Linux, kernel/bpf/syscall.c: bpf_prog_show_fdinfo): for probes of functions
    since Linux 5.12, for tracepoints since 6.7.
    """
    said = "".join(path.read_text() for path in Path(f"/proc/{pid}/fdinfo").iterdir())
    return sum(int(times) for times in _SKIPPED.findall(said))


def check_available() -> None:
    """Raise a TraceError with the cure if no trace can be taken here."""
    if shutil.which("bpftrace") is None:
        raise TraceError("a trace needs bpftrace, which is not installed; install it, or set trace=none")
    if os.geteuid() != 0:
        raise TraceError("a trace needs root; run as root, or set trace=none")


def _in_tracefs() -> list[str]:
    """Return the prefix that mounts tracefs for a command, if it is not mounted."""
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
    """Return whether a process sleeps in epoll_wait."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/syscall").read_text().split()[0] in EPOLL_WAIT
    return False


def _last_line(path: Path) -> str:
    """Return the last error of bpftrace, else its last line. Its first line, on RLIMIT_MEMLOCK, is harmless."""
    lines = path.read_text(errors="replace").strip().splitlines()
    complaints = [line for line in lines if "ERROR" in line]
    return (complaints or lines or ["it says nothing"])[-1]
