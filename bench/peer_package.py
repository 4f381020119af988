"""FlexLLMGen's own code, from PyPI into a folder of its own: it is measured, never imported by the project."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from experiments.errors import MachineError

REQUIREMENTS = ("flexgen==0.1.8", "attrs==26.1.0")
CACHE = Path(__file__).with_name(".cache")


def installed() -> Path:
    """The folder to put on the peer's path; fetched once.

    Raises:
        MachineError: it is not there and cannot be fetched.
    """
    folder = CACHE / REQUIREMENTS[0]
    if folder.exists():
        return folder
    partial = CACHE / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    # Without dependencies: of those only torch, numpy and tqdm are imported, and the project has them.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, "--target", str(partial), *REQUIREMENTS], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise MachineError(
            f"cannot fetch {' '.join(REQUIREMENTS)} from PyPI ({lines[-1] if lines else 'pip says nothing'}); connect "
            "this machine, or leave this part out by `python -m bench fio`"
        )
    partial.rename(folder)
    return folder
