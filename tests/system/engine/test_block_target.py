"""Raw writes to a block device: only to the named one, only if it is empty, and discarded afterwards."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dualblade.config.run import VariantConfig
from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError, DualBladeError, StorageError
from dualblade.geometry import KVGeometry
from dualblade.store import KVStore
from dualblade.units import MIB
from tests.support.loop_image import on_loop

GEOMETRY = KVGeometry.uniform(3, 2, 60, batch_size=3, capacity_tokens=40)
DIRECT = VariantConfig("nvme_direct_only", 0, "direct")
FIRST_LBA = 100


@pytest.fixture
def image(disk_path: Path) -> Path:
    path = disk_path / "image"
    path.write_bytes(os.urandom(16 * MIB))
    return path


@pytest.fixture(params=[512])
def loop(image: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A loop device over the image, with sectors of as many bytes as the test asks for."""
    with on_loop(image, request.param) as device:
        yield device


def storage(device: str | None, serial: object, **changes: object) -> StorageConfig:
    settings = {"name": "block", "directory": ".", "backend": "block", "first_lba": FIRST_LBA, "checksum": True}
    named = {"block_device": device, "serial": None if serial is None else str(serial)}
    return StorageConfig(**(settings | named | changes))  # type: ignore[arg-type]


def use(config: StorageConfig) -> None:
    """Write, read back and append on the whole cache."""
    with KVStore(GEOMETRY, config) as store:
        store.bind(DIRECT, 0)
        tokens = torch.rand(30, 3, 2, 60).half()
        for layer in range(3):
            store.prefill(layer, tokens, tokens + layer)
        for layer in range(3):
            k, v = store.fetch(layer)
            assert torch.equal(k, tokens)
            assert torch.equal(v, tokens + layer)
            store.append(layer, tokens[:1], tokens[:1])
        store.synchronize()


def test_only_the_extents_are_written_and_they_are_discarded(loop: str, image: Path) -> None:
    before = image.read_bytes()
    used_before = os.stat(image).st_blocks
    use(storage(loop, image))
    after = image.read_bytes()
    n_blocks = sum(-(-GEOMETRY.tensors[tensor].size_bytes // 4096) for tensor in GEOMETRY.tensors)
    own = slice(FIRST_LBA * 4096, (FIRST_LBA + n_blocks) * 4096)
    assert after[: own.start] == before[: own.start]
    assert after[own.stop :] == before[own.stop :]
    assert not any(after[own]), "a loop device punches holes for discards, so the extents must read as zeroes"
    assert os.stat(image).st_blocks == used_before - n_blocks * 8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"serial": "SOMEBODY-ELSES"}, "'SOMEBODY-ELSES' was asked for; nothing was written"),
        ({"serial": None}, "must be given"),
        ({"block_device": None}, "must be given"),
        ({"block_device": "/dev/null"}, "not a block device"),
        ({"block_device": "/dev/does-not-exist"}, "cannot find"),
        ({"first_lba": 4095}, "this run needs"),
        ({"lba_bytes": 100}, "storage.lba_bytes=100"),
    ],
)
def test_a_device_that_is_not_clearly_ours_is_refused(
    loop: str, image: Path, changes: dict[str, object], words: str
) -> None:
    before = image.read_bytes()
    settings = {"block_device": loop, "serial": str(image)} | changes
    with pytest.raises(DualBladeError, match=words):
        use(storage(settings.pop("block_device"), settings.pop("serial"), **settings))  # type: ignore[arg-type]
    assert image.read_bytes() == before


def test_a_device_with_a_file_system_on_it_is_refused(loop: str, image: Path) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-F", loop], check=True)
    before = image.read_bytes()
    with pytest.raises(StorageError, match=r"is not empty .*ext4.*wipefs"):
        use(storage(loop, image))
    assert image.read_bytes() == before


@pytest.mark.parametrize("loop", [4096], indirect=True)
def test_blocks_smaller_than_the_devices_sectors_are_refused(loop: str, image: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"storage\.lba_bytes=512 is no multiple of the 4096-byte sectors"):
        use(storage(loop, image, lba_bytes=512))
    use(storage(loop, image))


@pytest.mark.parametrize("lba_bytes", [512, 4096])
def test_every_block_size_serves(loop: str, image: Path, lba_bytes: int) -> None:
    use(storage(loop, image, lba_bytes=lba_bytes))


def test_a_device_that_somebody_holds_is_refused(loop: str, image: Path) -> None:
    holder = os.open(loop, os.O_RDWR | os.O_EXCL)
    try:
        with pytest.raises(StorageError, match="mounted, swapped to, or held"):
            use(storage(loop, image))
    finally:
        os.close(holder)
    with pytest.raises(ConfigurationError, match=r"storage\.serial"):
        use(storage(loop, None))


def test_a_device_that_refuses_the_discard_is_closed(loop: str, image: Path) -> None:
    store = KVStore(GEOMETRY, storage(loop, image))
    store.bind(DIRECT, 0)
    subprocess.run(["blockdev", "--setro", loop], check=True)
    with pytest.raises(StorageError, match=f"cannot discard this run's extents on {loop}: Operation not permitted"):
        store.close()
    subprocess.run(["blockdev", "--setrw", loop], check=True)
    assert Path(loop) not in [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    store.close()
