"""Names of the columns of runs that several modules read, each written once.

A column is named by where its value comes from: `config.` in config.yaml, `environment.` in environment.json, `result.`
in result.json. Names without a dot are metrics (metrics/run_metrics.py) and stay literals.
"""

from __future__ import annotations

VARIANT = "config.variant.name"
KNOB = "config.variant.knob"
OVERFLOW = "config.variant.overflow"
PIPELINE = "config.variant.pipeline"
MODEL = "config.model.name"
WORKLOAD = "config.workload.name"
STORAGE = "config.storage.name"
BACKEND = "config.storage.backend"
PACE = "config.storage.pace.read_gb_per_s"
PACE_NAME = "config.storage.pace.name"
DEVICE = "config.device.name"
LINK = "config.device.link"
GPU = "config.device.gpu.name"
TESTBED = "config.testbed.name"
TRACE = "config.trace.name"
SCALE = "config.scale"
OVERHEAD_GB = "config.paper_overhead_gb"
REPETITION = "config.repetition"
IO_PATH = "config.io.path"
IO_OP = "config.io.op"

EMULATED = "environment.emulated"
CPU = "environment.cpu"
ACCELERATOR = "environment.guest.accelerator"
KERNEL = "environment.kernel"
CGROUP = "environment.cgroup.version"
DISK = "environment.storage.name"
DISK_MODEL = "environment.storage.model"
DISK_SERIAL = "environment.storage.serial"
FILE_SYSTEM = "environment.storage.file_system"
CODE_HASH = "environment.code_hash"
CODE_REVISION = "environment.code_revision"
STARTED_AT = "environment.started_at"

LINK_KIND = "result.link.kind"
LINK_RATE = "result.link.gb_per_s"
LINK_RATIO = "result.link.storage_ratio"
DIRECT_CHOICE = "result.pipeline.groups.direct.choice"
DIRECT_ITERATIONS = "result.pipeline.groups.direct.iterations"

SSD = (TESTBED, DISK_MODEL, DISK_SERIAL)
MACHINE = (EMULATED, CPU, ACCELERATOR)
