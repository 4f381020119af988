"""A dry run: it says what a real run would write where, refuses what that would refuse, and leaves no trace."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dualblade.config.device import DeviceConfig
from dualblade.config.run import ModelConfig, RunConfig, VariantConfig, WorkloadConfig
from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError, DualBladeError, StorageError
from dualblade.run.planned_writes import writes_of_run
from dualblade.targets.block import device_serial
from dualblade.units import MIB

DIRECT = VariantConfig("nvme_direct_only", 0, "direct")
CACHED = VariantConfig("baseline", "all", "leave")
MODEL = ModelConfig("tiny", 2, 2, 2, 64, 128, 256, 2)
WORKLOAD = WorkloadConfig("short", batch_size=2, prompt_tokens=16, generated_tokens=4)
KV_BYTES = 2 * 2 * 19 * 2 * 2 * 64 * 2  # layers, K and V, tokens, sequences, heads, channels, bytes


def lines(directory: Path, variant: VariantConfig = DIRECT, **storage: object) -> str:
    settings = {"name": "test", "directory": str(directory), "lba_bytes": 512} | storage
    run = RunConfig(variant, MODEL, WORKLOAD, StorageConfig(**settings), DeviceConfig("host"))  # type: ignore[arg-type]
    return "\n".join(writes_of_run(run, 0))


def test_what_would_go_to_files_is_said_and_no_file_is_made(disk_path: Path) -> None:
    before = os.stat(disk_path).st_mtime_ns
    said = lines(disk_path, first_lba=10)
    assert f"bytes 5,120 to {5120 + KV_BYTES - 1:,} of a file in {disk_path}, by O_DIRECT" in said
    assert f"{KV_BYTES:,} bytes, removed at the end" in lines(disk_path, CACHED)
    lines(disk_path / "made" / "later")
    assert os.stat(disk_path).st_mtime_ns == before and list(disk_path.iterdir()) == []


@pytest.mark.parametrize("variant", [DIRECT, CACHED])
def test_a_folder_that_holds_no_files_is_refused(
    disk_path: Path, variant: VariantConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    (disk_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot create a file in storage\.directory=.*file/kv: Not a directory"):
        lines(disk_path / "file" / "kv", variant)
    with pytest.raises(StorageError, match="lies on tmpfs, which has no direct I/O; choose a folder on"):
        lines(Path("/dev/shm/kv"), variant)
    monkeypatch.setattr("dualblade.targets.file._free_bytes", lambda folder: KV_BYTES - 1)
    with pytest.raises(StorageError, match=rf"cannot reserve {KV_BYTES:,} bytes in .*: No space .*; free some space"):
        lines(disk_path, variant)


def test_space_before_the_first_block_counts(disk_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot reserve 4,611,686,018,.* bytes in storage\.directory"):
        lines(disk_path, first_lba=(1 << 53) - 1000)


def test_a_file_system_without_direct_io_is_refused_where_it_is_needed(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_direct(path: Path, flags: int, mode: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_open(path, flags, mode)

    real_open = os.open
    monkeypatch.setattr(os, "open", refuse_direct)
    with pytest.raises(StorageError, match="which has no direct I/O; choose a folder on"):
        lines(disk_path)
    assert "nothing would be written raw" in lines(disk_path, CACHED)


@pytest.fixture
def root_disk(disk_path: Path) -> str:
    """The disk that the checkout lies on: mounted, so nothing may ever be written to it."""
    number = os.stat(disk_path).st_dev
    path = Path("/dev") / Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
    if not path.is_block_device() or device_serial(path) is None:
        pytest.skip(f"the checkout lies on no disk with a serial number: {path}")
    return str(path)


def test_a_device_in_use_is_refused_as_a_run_would_refuse_it(disk_path: Path, root_disk: str) -> None:
    with pytest.raises(StorageError, match=r"but storage\.serial='NOT-THIS-ONE' was asked for; nothing was written"):
        lines(disk_path, backend="block", block_device=root_disk, serial="NOT-THIS-ONE")
    with pytest.raises(StorageError, match=r"is mounted on .*, so nothing may be written to it raw"):
        lines(disk_path, backend="block", block_device=root_disk, serial=device_serial(Path(root_disk)))
    for unnamed in ({"serial": "X"}, {"block_device": root_disk}):
        with pytest.raises(
            ConfigurationError, match=r"both storage\.block_device and its storage\.serial must be given"
        ):
            lines(disk_path, backend="block", **unnamed)
    assert "nothing would be written raw" in lines(disk_path, CACHED, backend="block")


@pytest.fixture
def loop(tmp_path_factory: pytest.TempPathFactory, disk_path: Path) -> Iterator[tuple[str, Path]]:
    """An empty block device, and the file that it is made of."""
    image = disk_path / "image"
    image.write_bytes(bytes(MIB) + os.urandom(MIB))
    made = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no loop device can be made here: {made.stderr.strip()}")
    yield made.stdout.strip(), image
    subprocess.run(["losetup", "--detach", made.stdout.strip()], check=True)


def test_an_empty_device_is_described_and_left_as_it_is(disk_path: Path, loop: tuple[str, Path]) -> None:
    device, image = loop
    settings = {"backend": "block", "block_device": device, "serial": str(image)}
    before = image.read_bytes()
    first_lba = MIB // 512
    for _ in range(2):  # the first has let go of the device
        said = lines(disk_path, **settings, first_lba=first_lba)
        assert f"device: {device}, serial {image}" in said
        assert f"would overwrite: bytes {MIB:,} to {MIB + KV_BYTES - 1:,} of it, by O_DIRECT" in said
        assert "these bytes are discarded" in said
    with pytest.raises(DualBladeError, match="holds 2,097,152 bytes and this run needs"):
        lines(disk_path, **settings, first_lba=2 * first_lba - 1)
    assert image.read_bytes() == before
    subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
    with pytest.raises(StorageError, match=r"is not empty .*ext4.*wipefs"):
        lines(disk_path, **settings)
