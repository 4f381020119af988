"""Compile the C sources into `dualblade.native._compiled` (cffi, API mode): `python dualblade/native/build.py`."""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent

ffibuilder = FFI()
for header in ("clock.h", "pages.h", "ring.h"):
    ffibuilder.cdef(re.sub(r"/\*.*?\*/", "", (HERE / header).read_text(), flags=re.DOTALL))
ffibuilder.set_source(
    "dualblade.native._compiled",
    '#include <stdint.h>\n#include "clock.h"\n#include "pages.h"\n#include "ring.h"',
    sources=["dualblade/native/clock.c", "dualblade/native/pages.c", "dualblade/native/ring.c"],
    include_dirs=["dualblade/native"],
    libraries=["uring"],
    extra_compile_args=["-O2", "-std=gnu11", "-Wall", "-Wextra"],
)

if __name__ == "__main__":
    import os

    os.chdir(HERE.parents[1])
    ffibuilder.compile(verbose=False)
