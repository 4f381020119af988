"""`--dry-run` of the harness: what would be written where, every reason to refuse, and nothing written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dualblade.units import MIB
from experiments.dry_run import print_writes
from experiments.points.sweep import compose_points
from tests.support.loop_image import on_loop

IO = ["+experiment=io_paths", "repetition=0", "io.size_mib=16", "io.block_kib=[4,64]", "io.queue_depths=[1]"]

RUN = ["scale=32", "model.n_layers=2", "variant=nvme_direct_only"]


@pytest.fixture(autouse=True)
def current_folder(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(disk_path)


def told(capsys: pytest.CaptureFixture[str], *overrides: str) -> tuple[int, str]:
    return print_writes(compose_points(overrides)), capsys.readouterr().out


@pytest.mark.parametrize(("path", "target"), [("ext4_direct", "a file, O_DIRECT"), ("block_direct", "a loop device")])
def test_an_io_path_writes_a_file(capsys: pytest.CaptureFixture[str], disk_path: Path, path: str, target: str) -> None:
    status, out = told(capsys, *IO, f"io.path={path}")
    assert status == 0
    assert f"{path} read rep 0: 2 cells of random reads" in out and target in out
    assert "would write: a file of 16,777,216 bytes in kv" in out and "layers" not in out
    assert list(disk_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "cause"),
    [
        ([*IO, "io.path=nonsense"], "io.path='nonsense' is not known"),
        ([*IO, "io.path=ext4_direct", "io.block_kib=[]"], "io.block_kib=[]"),
        ([*IO, "io.path=block_direct", "io.block_kib=[2]"], "io.block_kib=[2] is not of whole blocks"),
        ([*IO, "io.path=io_uring_cmd"], "io.path=io_uring_cmd takes an NVMe device"),
        ([*IO, "io.path=ext4_direct", "io.size_mib=1000000000"], "bytes free and this run needs"),
        (["storage.directory=/proc/version/kv"], "cannot make a folder in storage.directory=/proc/version/kv"),
        (["storage.directory=/dev/shm/kv"], "which is memory and has no direct I/O"),
        (["deadline_s=soon"], "deadline_s='soon' is not a number"),
    ],
    ids=str,
)
def test_what_would_be_refused_is_said(capsys: pytest.CaptureFixture[str], overrides: list[str], cause: str) -> None:
    status, out = told(capsys, *overrides)
    assert status == 1
    assert out.startswith("refused: ") and cause in out


@pytest.mark.parametrize("overrides", [[*IO, "io.path=block_direct", "io.op=write"], RUN], ids=["io", "run"])
def test_a_block_device_is_looked_at_and_left_as_it_was(
    capsys: pytest.CaptureFixture[str], disk_path: Path, overrides: list[str]
) -> None:
    image = disk_path / "image"
    image.write_bytes(before := os.urandom(48 * MIB))
    with on_loop(image) as device:
        named = ["storage=block", f"storage.block_device={device}", "storage.first_lba=256"]
        accepted, out = told(capsys, *overrides, *named, f"storage.serial={image}")
        refused, why = told(capsys, *overrides, *named, "storage.serial=another")
    assert accepted == 0, out
    assert f"device: {device}" in out and f"would overwrite: bytes {MIB:,} to " in out
    assert refused == 1 and "'another' was asked for" in why
    assert image.read_bytes() == before
