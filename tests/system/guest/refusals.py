"""Runs in the guest: puts a device to every use there is, and prints what the claim to it says; one JSON object.

`python refusals.py SERIAL LBA_BYTES`: partition 1 of that device is mounted, partition 2 has nothing on it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from dualblade.config.storage import StorageConfig
from dualblade.errors import DualBladeError
from dualblade.linux import ownership
from dualblade.linux.nvme_namespace import find
from dualblade.targets.claim import BlockClaim

DM_NAME = "dualblade-test"


def main(serial: str, lba_bytes: int) -> None:
    ownership._LOCK_PATIENCE_S = 0.2
    with tempfile.TemporaryDirectory() as records:
        storage = StorageConfig("nvme", records, backend="nvme", serial=serial, partition=2, lba_bytes=lba_bytes)
        print(json.dumps(dict(refusals(storage))))


def refusals(storage: StorageConfig) -> Iterator[tuple[str, Any]]:
    assert storage.serial is not None
    namespace = find(storage.serial)
    raw = f"{namespace.block_device}p2"
    yield "free", attempt(storage)
    yield "wrong serial", attempt(storage, serial="SOMEBODY-ELSES")
    yield "unnamed", attempt(storage, partition=None)
    yield "other blocks", attempt(storage, lba_bytes=512 if storage.lba_bytes == 4096 else 4096)
    yield "mounted", attempt(storage, partition=1)
    yield "partition table", whole_device_unmounted(storage)
    yield "no such partition", attempt(storage, partition=3)
    yield "no such namespace", attempt(storage, namespace=2)
    yield "outside", attempt(storage, last_lba=10**9)
    yield "too deep", attempt(storage, queue_depth=4096)
    yield "polling", attempt(storage, iopoll=True)
    with held(dataclasses.replace(storage, first_lba=100, last_lba=199)):
        yield "overlap", attempt(storage, first_lba=199, last_lba=300)
        yield "same partition", attempt(storage, first_lba=200, last_lba=300)
    with dm_on(raw):
        yield "held", attempt(storage)
    run("mkswap", raw)
    yield "signature", attempt(storage)
    run("swapon", raw)
    yield "swap", attempt(storage)
    run("swapoff", raw)
    run("wipefs", "--all", raw)
    yield "free again", attempt(storage)


def attempt(storage: StorageConfig, **changes: Any) -> str | None:
    """Why the claim is refused, or None."""
    try:
        BlockClaim(dataclasses.replace(storage, **changes)).close()
    except DualBladeError as error:
        return str(error)
    return None


def whole_device_unmounted(storage: StorageConfig) -> str | None:
    """The namespace as a whole, while nothing of it is in use: its partition table still says that it is not ours."""
    assert storage.serial is not None
    first = f"{find(storage.serial).block_device}p1"
    where = run("findmnt", "-no", "TARGET", first).strip()
    run("umount", where)
    try:
        return attempt(storage, partition=None, last_lba=1000)
    finally:
        run("mount", "-t", "ext4", first, where)


@contextlib.contextmanager
def held(storage: StorageConfig) -> Iterator[None]:
    claim = BlockClaim(storage)
    try:
        yield
    finally:
        claim.close()


@contextlib.contextmanager
def dm_on(device: str) -> Iterator[None]:
    """A device-mapper volume on it, as LVM and dm-crypt make them."""
    run("modprobe", "dm-mod")
    run("dmsetup", "create", DM_NAME, "--table", f"0 2048 linear {device} 0")
    try:
        yield
    finally:
        run("dmsetup", "remove", "--retry", DM_NAME)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
