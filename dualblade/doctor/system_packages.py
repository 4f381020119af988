"""Install the system packages that pip cannot: with apt as root or by password-less sudo, or else name them.

Runs before there is a virtual environment, with the interpreter that will make it: standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
HEADERS = [Path("/usr/include"), Path("/usr/local/include")]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")  # the report is tested in one


class Requirement(NamedTuple):
    """A Debian package, whether it is there already (from any source), and whether setup can go on without it."""

    package: str
    present: bool
    essential: bool


def header(name: str, folders: Iterable[Path]) -> bool:
    return any((folder / name).exists() for folder in folders)


def which_admin(name: str) -> str | None:
    """Return the path of a program, also of one in an administrator's folders."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


def requirements() -> list[Requirement]:
    """What the project uses from the system: first what building it takes, then the tools that runs and tests call."""
    return [
        Requirement("gcc", shutil.which("cc") is not None, essential=True),
        Requirement("libc6-dev", header("stdio.h", HEADERS), essential=True),
        Requirement("liburing-dev", header("liburing.h", HEADERS), essential=True),
        Requirement(f"{PYTHON}-dev", header("Python.h", [Path(sysconfig.get_paths()["include"])]), essential=True),
        Requirement(f"{PYTHON}-venv", importlib.util.find_spec("ensurepip") is not None, essential=True),
        Requirement("cgroup-tools", shutil.which("cgexec") is not None, essential=False),
        Requirement("bpftrace", shutil.which("bpftrace") is not None, essential=False),
        Requirement("fio", shutil.which("fio") is not None, essential=False),
        Requirement("dmsetup", which_admin("dmsetup") is not None, essential=False),
        Requirement("chromium", any(map(shutil.which, BROWSERS)), essential=False),
        Requirement("qemu-system-x86", shutil.which("qemu-system-x86_64") is not None, essential=False),
        Requirement("busybox-static", shutil.which("busybox") is not None, essential=False),
        Requirement("kmod", which_admin("depmod") is not None, essential=False),
        Requirement("e2fsprogs", which_admin("mkfs.ext4") is not None, essential=False),
    ]


def missing() -> list[Requirement]:
    return [requirement for requirement in requirements() if not requirement.present]


def become_root() -> list[str] | None:
    """The prefix that makes a command run as root without a question, or None."""
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "--non-interactive"]
    if shutil.which("sudo") and subprocess.run([*sudo, "true"], capture_output=True, check=False).returncode == 0:
        return sudo
    return None


def apt_install(prefix: list[str], packages: list[str]) -> None:
    """A package list that cannot be refreshed, or a package that cannot be had, shows in what is missing afterwards."""
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    subprocess.run([*prefix, "apt-get", "update", "-qq"], check=False)
    for package in packages:
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
        subprocess.run([*prefix, *environment, *install], check=False)


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036, whatever PYTHON names runs this
        print(f"{PYTHON} is too old, the project needs 3.11; choose one with make setup PYTHON=...", file=sys.stderr)
        return 1
    absent = missing()
    prefix = become_root()
    if absent and prefix is not None and shutil.which("apt-get"):
        apt_install(prefix, [requirement.package for requirement in absent])
        absent = missing()
    if not absent:
        return 0
    names = " ".join(requirement.package for requirement in absent)
    stops = any(requirement.essential for requirement in absent)
    verdict = "the project cannot be built without them all" if stops else "the project works with less"
    print(f"missing system packages ({verdict}); install them with: sudo apt-get install {names}", file=sys.stderr)
    return int(stops)


if __name__ == "__main__":
    sys.exit(main())
