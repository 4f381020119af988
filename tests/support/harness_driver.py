"""`python harness_driver.py OVERRIDES`: the harness itself, with the fake engine in the place of the real one."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments import run
from experiments.processes import engine

if __name__ == "__main__":
    engine.PROJECT = Path(__file__).with_name("fake_engine")
    sys.exit(run.main())
