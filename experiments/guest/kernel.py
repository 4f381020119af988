"""The guest's kernel: the distribution's own package, unpacked into the project's cache and never installed.

`python -m experiments.guest.kernel` fetches it ahead of the first guest, as `make setup` does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.errors import MachineError
from experiments.processes.engine import PROJECT

CACHE = PROJECT / ".cache/guest"
META_PACKAGE = "linux-image-amd64"  # of Debian's current kernel
PREFIX = "kernel-"
FETCH_TIMEOUT_S = 300


@dataclass(frozen=True)
class Kernel:
    """A bootable image with its modules beside it, as the package lays them out below `folder`."""

    folder: Path

    @property
    def release(self) -> str:
        return next((self.folder / "lib/modules").iterdir()).name

    @property
    def image(self) -> Path:
        return self.folder / "boot" / f"vmlinuz-{self.release}"


def cached(meta_package: str = META_PACKAGE) -> Kernel | None:
    """The newest kernel of this meta package in the cache."""
    folders = sorted((CACHE / meta_package).glob(f"{PREFIX}*"), key=lambda folder: folder.stat().st_mtime)
    return Kernel(folders[-1]) if folders else None


def fetch(meta_package: str = META_PACKAGE) -> Kernel:
    """Return the cached kernel, or fetch the one of the distribution's meta package. Needs no root.

    Raises:
        MachineError: there is no such package here, or it cannot be had.
    """
    if kernel := cached(meta_package):
        return kernel
    package, cache = _package_name(meta_package), CACHE / meta_package
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=cache) as work:
        new = Path(work) / "root"
        _call(["apt-get", "download", "-qq", package], Path(work))
        (archive,) = Path(work).glob("*.deb")
        _call(["dpkg", "-x", archive.name, new.name], Path(work))
        kernel = Kernel(new)
        _call([shutil.which("depmod") or "/sbin/depmod", "-b", new.name, kernel.release], Path(work))
        target = cache / f"{PREFIX}{kernel.release}"
        new.rename(target)  # complete, or not there
    return Kernel(target)


def _package_name(meta_package: str) -> str:
    """The meta package depends on the current kernel's package."""
    known = _call(["apt-cache", "pkgnames", meta_package], Path("/")).split()
    lines = _call(["apt-cache", "depends", meta_package], Path("/")).splitlines() if meta_package in known else []
    names = [line.split()[-1] for line in lines if "Depends: linux-image-" in line]
    if not names:
        raise MachineError(
            f"no kernel for the guest: this distribution has no package {meta_package}; name another by "
            "testbed.kernel, or use testbed=local"
        )
    return names[0]


def _call(command: Sequence[str], folder: Path) -> str:
    """Return the output of a command that must succeed."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=FETCH_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.CalledProcessError as error:
        complaint = (error.stderr.strip().splitlines() or [f"status {error.returncode}"])[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        complaint = str(error)
    else:
        return done.stdout
    raise MachineError(
        f"no kernel for the guest: {' '.join(command)} failed ({complaint}); run make setup where packages can be had"
    )


def main() -> int:
    try:
        print(f"kernel for the guest: {fetch().release}")
    except MachineError as error:
        print(f"{error}; everything but testbed=guest works without", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
