"""Compile the C sources into `dualblade._uring_native` (cffi, API mode): `python dualblade/_uring_build.py`."""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent

ffibuilder = FFI()
for header in ("_clock.h", "_pages.h", "_uring.h"):
    ffibuilder.cdef(re.sub(r"/\*.*?\*/", "", (HERE / header).read_text(), flags=re.DOTALL))
ffibuilder.set_source(
    "dualblade._uring_native",
    '#include <stdint.h>\n#include "_clock.h"\n#include "_pages.h"\n#include "_uring.h"',
    sources=["dualblade/_clock.c", "dualblade/_pages.c", "dualblade/_uring.c"],
    include_dirs=["dualblade"],
    libraries=["uring"],
    extra_compile_args=["-O2", "-std=gnu11", "-Wall", "-Wextra"],
)

if __name__ == "__main__":
    import os

    os.chdir(HERE.parent)
    ffibuilder.compile(verbose=False)
