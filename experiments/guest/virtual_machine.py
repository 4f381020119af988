"""The virtual machine of a guest: virtme-ng makes initramfs and QEMU's command, over this host's file system. No root.

QEMU is started as a child that ends with the harness, however the harness ends, so nothing is left running.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import platform
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualblade.linux.libc import io_uring_setup
from experiments.errors import MachineError
from experiments.guest import accelerator, kernel
from experiments.guest.accelerator import QEMU, Accelerator
from experiments.guest.emulated_ssd import EmulatedSsd
from experiments.guest.kernel import CACHE, Kernel
from experiments.guest.qemu_monitor import Monitor
from experiments.machine.journal import Journal
from experiments.processes.channel import Channel
from experiments.processes.engine import PROJECT, enter

EXCHANGE = Path("/run/dualblade/exchange")  # in the guest
CONSOLE_LOG, JOB_LOG, BOOT_SCRIPT, HARDWARE = "console.log", "job.log", "boot.sh", "hardware.json"
MOUNTS = Path("/run/dualblade")
PORT = "dualblade.jobs"
WRITABLE = ("/etc", "/lib", "/usr", "/var", "/tmp")  # in the guest's memory, over the host's; as vng has it
CACHED_MOUNT = "ro,trans=virtio,version=9p2000.L,msize=1048576,cache=loose"
COMPOSE_TIMEOUT_S = 60

# Without ERMS and FSRM the guest's kernel copies by a loop, which is emulated three times faster than `rep movsb`;
# without LA57 its page tables have four levels, and emulating them takes a tenth to a quarter less time.
CPU: Mapping[Accelerator, str] = {"tcg": "max,-erms,-fsrm,-la57", "kvm": "host"}


@dataclass(frozen=True)
class Hardware:
    """The hardware of a guest: SSDs by name, the number of polled queues of each, and the package of its kernel."""

    cpus: int
    memory_mib: int
    ssds: Mapping[str, EmulatedSsd]
    poll_queues: int = 0
    kernel: str = kernel.META_PACKAGE


@dataclass
class VirtualMachine:
    """A running guest, the folder that it shares with the host, and the two lines to it."""

    hardware: Hardware
    accelerator: Accelerator
    kernel: Kernel
    folder: Path
    jobs: Channel
    monitor: Monitor
    process: subprocess.Popen[bytes]

    @property
    def exchange(self) -> Path:
        return self.folder / "exchange"

    def wait(self, timeout_s: float) -> bool:
        """Return whether the machine switched itself off in time."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def log(self) -> str:
        """Return the output of kernel, QEMU and job."""
        texts = [self.folder / CONSOLE_LOG, self.exchange / JOB_LOG]
        return "\n".join(path.read_text(errors="replace").strip() for path in texts if path.exists()).strip()


@contextlib.contextmanager
def running(hardware: Hardware, journal: Journal) -> Iterator[VirtualMachine]:
    """Yield a running machine; it is switched off and its images are removed when the block is left.

    Raises:
        MachineError: something that a guest takes is not there.
    """
    _check_tools()
    _compile_modules()
    guest_kernel = kernel.fetch(hardware.kernel)
    folder = CACHE / f"run-{os.getpid()}-{time.monotonic_ns()}"
    with journal.undo("remove_tree", str(folder)), contextlib.ExitStack() as stack:
        (folder / "exchange").mkdir(parents=True)
        chosen = accelerator.accelerator(guest_kernel)
        images = {name: folder / f"{name}.img" for name in hardware.ssds}
        for name, ssd in hardware.ssds.items():
            ssd.make_image(images[name])
        (folder / "exchange" / BOOT_SCRIPT).write_text(_boot_script())
        (folder / "exchange" / HARDWARE).write_text(json.dumps(_description(hardware, chosen)))
        jobs, jobs_far = _pair(stack)
        monitor, monitor_far = _pair(stack)
        command = _compose(hardware, chosen, guest_kernel, folder)
        command += _lines(jobs_far, monitor_far) + _shares(folder / "exchange") + _drives(hardware, images)
        process = _start(command, [jobs_far, monitor_far], folder)
        stack.callback(_kill, process)
        jobs_far.close()
        monitor_far.close()
        yield VirtualMachine(hardware, chosen, guest_kernel, folder, Channel(jobs), Monitor(Channel(monitor)), process)


def missing_tool() -> str | None:
    """Return in words what is missing to boot a guest; None if nothing is."""
    tools = {QEMU: "qemu-system-x86", "busybox": "busybox-static", "depmod": "kmod", "mkfs.ext4": "e2fsprogs"}
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    for tool, package in tools.items():
        if shutil.which(tool, path=path) is None:
            return f"{tool} is not there (Debian's package {package})"
    if not _virtme_run().exists():
        return "virtme-ng is not in the virtual environment"
    return None


def _check_tools() -> None:
    if missing := missing_tool():
        raise MachineError(f"no guest can be booted: {missing}; run make setup, or use testbed=local")


def _compile_modules() -> None:
    """Write the bytecode of our modules: the guest cannot write it, and would compile them again in every process."""
    for package in ("dualblade", "experiments", "traces"):
        compileall.compile_dir(PROJECT / package, quiet=2)


def _virtme_run() -> Path:
    return Path(sys.prefix) / "bin/virtme-run"


def _compose(hardware: Hardware, chosen: Accelerator, guest_kernel: Kernel, folder: Path) -> list[str]:
    """Return QEMU's command as virtme-ng would run it, and make the guest's initramfs."""
    mount = f"mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 exchange {EXCHANGE}"
    command = [sys.executable, str(_virtme_run()), "--kimg", str(guest_kernel.image), "--mods", "auto"]
    command += ["--cpus", str(hardware.cpus), "--memory", f"{hardware.memory_mib}M", "--user", "root"]
    command += ["--disable-microvm", "--force-9p", "--show-boot-console", "--kopt", "loglevel=4"]
    command += ["--kopt", f"nvme.poll_queues={hardware.poll_queues}"]
    command += [f"--overlay-rwdir={folder}" for folder in WRITABLE]
    command += ["--script-sh", f"mkdir -p {EXCHANGE} && {mount} && exec sh {EXCHANGE / BOOT_SCRIPT}"]
    # A CPU emulated on a busy machine misses the ticks by which the kernel tests its timer (Linux,
    # arch/x86/kernel/apic/io_apic.c: check_timer), and it then ends the boot; under KVM it does not test.
    command += ["--disable-kvm", "--kopt", "no_timer_check"] if chosen == "tcg" else []
    command += ["--dry-run", "--show-command", "--save-initramfs", str(folder / "initramfs")]
    environment = {**os.environ, "TMPDIR": str(folder)}
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=COMPOSE_TIMEOUT_S,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (str(error.stderr or "").strip().splitlines() or [str(error)])[-1]
        raise MachineError(f"virtme-ng cannot make a guest: {said}; run make setup again") from None
    console = f"file,id=console,path={folder / CONSOLE_LOG},append=on"
    words = shlex.split(done.stdout.strip().splitlines()[-1])
    words = [console if word == "file,id=console,path=/proc/self/fd/2" else word for word in words]
    return [*words, "-cpu", CPU[chosen]]


def _lines(jobs: socket.socket, monitor: socket.socket) -> list[str]:
    """Return the options for the two lines to the harness: ends of sockets that QEMU inherits."""
    return [
        *("-chardev", f"socket,id=jobs,fd={jobs.fileno()}", "-device", "virtio-serial-pci,id=jobs-bus"),
        *("-device", f"virtserialport,bus=jobs-bus.0,chardev=jobs,name={PORT}"),
        *("-chardev", f"socket,id=monitor,fd={monitor.fileno()}", "-mon", "chardev=monitor,mode=control"),
    ]


def _shares(exchange: Path) -> list[str]:
    """Return the options for folders of the host by 9p: one to write to, and those that Python reads, to be cached."""
    shares = [f"local,id=exchange,path={exchange},security_model=none,multidevs=remap"]
    for turn, folder in enumerate(cached_folders()):
        shares.append(f"local,id=cached{turn},path={folder},security_model=none,readonly=on,multidevs=remap")
    return [
        word
        for share in shares
        for tag in [share.partition("id=")[2].partition(",")[0]]
        for word in ("-fsdev", share, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}")
    ]


def _drives(hardware: Hardware, images: Mapping[str, Path]) -> list[str]:
    """Return the options for each SSD, in a slot of its own, from which it can be unplugged."""
    aio = "io_uring" if _io_uring_works() else "threads"
    words = []
    for turn, (name, ssd) in enumerate(hardware.ssds.items(), start=1):
        words += ["-device", f"pcie-root-port,id={name}-slot,chassis={turn},slot={turn}"]
        words += ssd.options(images[name], name, aio)
    return words


def cached_folders() -> list[Path]:
    """Return the folders that Python reads (checkout, environment, interpreter, libraries), none inside another."""
    system = Path("/usr")
    base = Path(sys.base_prefix).resolve()
    folders = [
        PROJECT,
        Path(sys.prefix),
        system / "bin",
        system / "lib" / (sysconfig.get_config_var("MULTIARCH") or ""),
    ]
    folders += [Path(sysconfig.get_path("stdlib"))] if base == system else [base]  # /usr/lib shows the guest's modules
    wanted = {folder.resolve() for folder in folders}
    return sorted(path for path in wanted if not any(path.is_relative_to(other) for other in wanted - {path}))


def _boot_script() -> str:
    """Return the guest's first script: faster mounts of what does not change, then the loop that serves the harness."""
    places = [shlex.quote(str(folder)) for folder in cached_folders()]
    mounts = [  # /var/tmp and the like are new and empty in the guest
        f"mkdir -p {place} && mount -t 9p -o {CACHED_MOUNT} cached{turn} {place}" for turn, place in enumerate(places)
    ]
    job = shlex.join([sys.executable, "-P", "-m", "experiments.guest.job"])
    variables = {"PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp", "LC_ALL": "C.UTF-8"}
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join(
        [
            "set -e",
            f"exec > {EXCHANGE / JOB_LOG} 2>&1",
            *mounts,
            *exports,
            f"cd {shlex.quote(os.getcwd())}",
            f"exec {job}",
            "",
        ]
    )


def _description(hardware: Hardware, chosen: Accelerator) -> dict[str, Any]:
    """Return facts for the guest: where to mount each SSD's file system, and what results state about the machine."""
    size = {"cpus": hardware.cpus, "memory_mib": hardware.memory_mib, "kernel_package": hardware.kernel}
    outside = {"host_kernel": platform.release(), "host_cores": len(os.sched_getaffinity(0)), "qemu": _qemu_version()}
    return {
        "ssds": [{"serial": ssd.serial, "directory": str(MOUNTS / name)} for name, ssd in hardware.ssds.items()],
        "provenance": {"guest": {"accelerator": chosen, **size, **outside}},
    }


def _qemu_version() -> str:
    done = subprocess.run([QEMU, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0].removeprefix("QEMU emulator version ")


def _start(command: Sequence[str], inherited: Sequence[socket.socket], folder: Path) -> subprocess.Popen[bytes]:
    with open(folder / CONSOLE_LOG, "ab") as log:
        return subprocess.Popen(
            [*enter(None), *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[end.fileno() for end in inherited],
            start_new_session=True,  # Ctrl-C is for the harness
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _pair(stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    stack.callback(near.close)
    stack.callback(far.close)
    return near, far


def _io_uring_works() -> bool:
    """Containers often forbid it to the host's processes; the guest has its own all the same."""
    try:
        os.close(io_uring_setup(1))
    except OSError:
        return False
    return True
