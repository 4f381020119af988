"""The C loop under the thread and the address sanitizer: several rings, one file, one clock."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT

ENGINE = CHECKOUT / "dualblade/native"
STRESS = Path(__file__).with_name("ring_stress.c")
ROUNDS = 20


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_rings_in_several_threads(sanitizer: str, tmp_path: Path, disk_path: Path) -> None:
    program = tmp_path / "stress"
    _compile(sanitizer, program)
    options = {"TSAN_OPTIONS": "halt_on_error=0 exitcode=66", "UBSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(
        [program, disk_path / "file", str(ROUNDS)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **options},
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address space layout is not one that the thread sanitizer knows")
    assert done.returncode == 0, done.stderr[:4000]
    assert "WARNING" not in done.stderr and "ERROR" not in done.stderr


def _compile(sanitizer: str, program: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    sources = [STRESS, ENGINE / "clock.c", ENGINE / "ring.c"]
    command = [compiler, "-g", "-O1", f"-fsanitize={sanitizer}", f"-I{ENGINE}", *sources, "-luring", "-lpthread"]
    done = subprocess.run([*command, "-o", program], capture_output=True, text=True)
    if "cannot find -l" in done.stderr or "libtsan" in done.stderr:
        pytest.skip(f"the compiler has no -fsanitize={sanitizer} here")
    assert done.returncode == 0, done.stderr
