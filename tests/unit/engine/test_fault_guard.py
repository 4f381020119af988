"""The guard of a mapping whose file is truncated; other faults of a process are handled as without a guard."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dualblade.paths.fault_guard import FaultGuard
from tests.support.checkout import CHECKOUT

PAGE = mmap.PAGESIZE

# A fault in a mapping of its own, in a process that has used a guard.
FAULT = """
import ctypes, mmap, os, signal, sys, tempfile
from dualblade.paths.fault_guard import FaultGuard

file = tempfile.TemporaryFile()
file.truncate(mmap.PAGESIZE)
mapping = mmap.mmap(file.fileno(), mmap.PAGESIZE)
other = mmap.mmap(-1, mmap.PAGESIZE)
with FaultGuard(ctypes.addressof(ctypes.c_char.from_buffer(other)), mmap.PAGESIZE) as guard:
    other[0]
    {before}
"""


def mapped(path: Path, n_pages: int) -> np.ndarray:
    path.write_bytes(bytes([7]) * (n_pages * PAGE))
    with open(path, "r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), n_pages * PAGE), dtype=np.uint8)


@pytest.mark.parametrize("cut_at", [0, 2, 4])
def test_a_guarded_block_sees_zeros_from_the_page_without_data_on(tmp_path: Path, cut_at: int) -> None:
    pages = mapped(tmp_path / "file", 4)
    os.truncate(tmp_path / "file", cut_at * PAGE)
    with FaultGuard(pages.ctypes.data, pages.nbytes) as guard:
        seen = pages.copy()
    assert guard.failed_byte == (cut_at * PAGE if cut_at < 4 else None)
    assert (seen[: cut_at * PAGE] == 7).all() and not seen[cut_at * PAGE :].any()


def test_a_store_goes_nowhere_and_the_process_goes_on(tmp_path: Path) -> None:
    pages = mapped(tmp_path / "file", 4)
    os.truncate(tmp_path / "file", 0)
    with FaultGuard(pages.ctypes.data, pages.nbytes) as guard:
        pages[PAGE + 10 :] = 9
    assert guard.failed_byte == PAGE + 10
    assert os.stat(tmp_path / "file").st_size == 0


def test_each_of_several_guards_has_its_own_faults(tmp_path: Path) -> None:
    mappings = [mapped(tmp_path / name, 2) for name in ("a", "b", "c")]
    os.truncate(tmp_path / "b", PAGE)
    first, second, third = (FaultGuard(pages.ctypes.data, pages.nbytes) for pages in mappings)
    with first, second:
        with third:
            assert [int(pages[-1]) for pages in mappings] == [7, 0, 7]
        assert [guard.failed_byte for guard in (first, second, third)] == [None, 2 * PAGE - 1, None]


@pytest.mark.parametrize(
    ("options", "before", "after", "status", "said"),
    [
        ([], "os.truncate(file.fileno(), 0); mapping[0]", "", -signal.SIGBUS, ""),
        ([], "pass", "os.truncate(file.fileno(), 0); mapping[0]", -signal.SIGBUS, ""),
        (["-X", "faulthandler"], "pass", "os.truncate(file.fileno(), 0); mapping[0]", -signal.SIGBUS, "Bus error"),
        ([], "os.kill(os.getpid(), signal.SIGBUS)", "", -signal.SIGBUS, ""),
    ],
    ids=["during", "after", "faulthandler", "sent"],
)
def test_a_fault_outside_is_handled_as_without_a_guard(
    tmp_path: Path, options: list[str], before: str, after: str, status: int, said: str
) -> None:
    program = FAULT.format(before=before) + after
    done = subprocess.run([sys.executable, *options, "-c", program], cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
