"""The choice of QEMU's accelerator for a guest: KVM if it boots a kernel in time, else emulation."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Literal

from experiments.guest.kernel import CACHE, Kernel

Accelerator = Literal["kvm", "tcg"]

QEMU = "qemu-system-x86_64"
PROBE_TIMEOUT_S = 15
KVM = Path("/dev/kvm")
# A kernel that was given no root gets this far, panics, and with panic=-1 and -no-reboot ends the machine.
BOOTED = "Unable to mount root fs"


def accelerator(kernel: Kernel) -> Accelerator:
    """Return the accelerator, probed once per boot of the host: /dev/kvm may open and still run no guest."""
    if not os.access(KVM, os.R_OK | os.W_OK):
        return "tcg"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    answer = CACHE / f"kvm-{kernel.release}-{boot}-{os.geteuid()}"
    if not answer.exists():
        answer.write_text("kvm" if _kvm_boots(kernel) else "tcg")
    return "kvm" if answer.read_text() == "kvm" else "tcg"


def _kvm_boots(kernel: Kernel) -> bool:
    command = [QEMU, "-accel", "kvm", "-cpu", "host", "-m", "256M", "-nodefaults", "-display", "none", "-no-reboot"]
    command += ["-serial", "stdio", "-kernel", str(kernel.image), "-append", "console=ttyS0 panic=-1"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and BOOTED in done.stdout.decode(errors="replace")
