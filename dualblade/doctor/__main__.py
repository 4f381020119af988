"""`python -m dualblade.doctor [FOLDER ...]`: what this machine can do, and how to get the rest."""

from __future__ import annotations

import sys

from dualblade.doctor.report import main

sys.exit(main(sys.argv[1:]))
