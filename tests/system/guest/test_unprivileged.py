"""The guest without root: a user who may do nothing on this machine measures a point in it, which polls."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.errors import MachineError
from experiments.guest import virtual_machine
from experiments.guest.kernel import fetch
from experiments.processes.engine import PROJECT
from experiments.results_folder import ResultsFolder
from tests.system.guest.test_guest import TINY
from tests.system.guest.test_nvme_polling import KERNEL

NOBODY = "nobody"
PARTS = ("conf", "dualblade", "experiments", "traces")
UNPRIVILEGED = ("--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
POLLING = ("storage.iopoll=true", "testbed.poll_queues=2", f"testbed.kernel={KERNEL}", "storage.checksum=true")
TIMEOUT_S = 300

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="without root, every test of the guest shows it already")


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A copy of what a run takes, with the guest's kernel, that belongs to nobody."""
    if missing := virtual_machine.missing_tool():
        pytest.skip(f"no guest can be booted: {missing}")
    try:
        kernel = fetch(KERNEL)
    except MachineError as error:
        pytest.skip(str(error))
    folder = Path(tempfile.mkdtemp(prefix="dualblade-test-", dir="/var/tmp"))  # a disk that everybody may reach
    try:
        for part in PARTS:
            shutil.copytree(PROJECT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(kernel.folder, folder / kernel.folder.relative_to(PROJECT), symlinks=True)
        subprocess.run(["chown", "-R", f"{NOBODY}:", str(folder)], check=True)
        yield folder
    finally:
        shutil.rmtree(folder)


def test_a_user_without_any_right_measures_a_point(checkout: Path) -> None:
    """Native NVMe commands, a cgroup and dropped caches, all of them the guest's, and the results are the user's.

    The rings of the run share the queues to poll, and the checksums hold what they read against what was written.
    """
    overrides = ["testbed=guest", "storage=ssd_a", "variant=dual_blade", "results_dir=results", *TINY, *POLLING]
    done = as_nobody([sys.executable, "-m", "experiments.run", *overrides], checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = ResultsFolder(checkout / "results").records()
    assert record.result["io_mode"]["direct"]["passthrough"] and record.result["io_mode"]["direct"]["iopoll"]
    assert record.result["bytes"]["decode"]["device_read"] > 0
    assert record.environment["guest"]["poll_queues"] == 2 and record.environment["kernel"].startswith("6.12.")
    assert record.environment["cgroup"]["limit_bytes"] and record.environment["cache_drop"]["verified"]
    user = pwd.getpwnam(NOBODY).pw_uid
    assert {path.stat().st_uid for path in record.folder.iterdir()} == {user}


def as_nobody(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The command in `folder` by a user without rights, in a view of the machine in which Python can be read."""
    user, python = pwd.getpwnam(NOBODY), {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    drop = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", *UNPRIVILEGED, "--", *command]
    script = "\n".join(["set -e", *uncover(python, folder / "covers"), f"exec {shlex.join(drop)}"])
    view = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    if view.returncode:
        pytest.skip(f"no view of the machine for another user: {view.stderr.strip()}")
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        cwd=folder,
        env={
            "PATH": os.defpath + ":/usr/sbin:/sbin",
            "HOME": str(folder),
            "DUALBLADE_STATE_DIR": str(folder / "state"),
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def uncover(folders: set[Path], covers: Path) -> Iterator[str]:
    """Shell commands by which folders inside a closed one, such as root's home, can be reached by everybody."""
    closed = {folder: shut for folder in folders if (shut := closed_above(folder))}
    for folder, shut in closed.items():
        seen = f"{covers}{folder}"
        yield f"mkdir -p {seen} && chmod 755 {covers}{shut} && mount --bind {folder} {seen}"
    for shut in set(closed.values()):
        yield f"mount --rbind {covers}{shut} {shut}"


def closed_above(folder: Path) -> Path | None:
    """The outermost folder on the way to it that not everybody may enter."""
    return next((parent for parent in reversed(folder.parents) if not parent.stat().st_mode & 0o001), None)
