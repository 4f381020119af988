"""What of a point makes its guest: the section `testbed` of one with an emulated SSD."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dualblade.errors import ConfigurationError
from experiments.guest.emulated_ssd import SECTION, EmulatedSsd
from experiments.guest.kernel import META_PACKAGE

NAME = "guest"
LRUS = ("classic", "multigen")


@dataclass(frozen=True)
class GuestSettings:
    """Size of the guest, its kernel and how that reclaims pages, the SSD measured, and the SSD's queues to poll."""

    lru: Literal["classic", "multigen"]
    cpus: int
    memory_mib: int
    ssd_name: str
    ssd: EmulatedSsd
    poll_queues: int = 0
    kernel: str = META_PACKAGE

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> GuestSettings | None:
        """None for a point of another testbed.

        Raises:
            ConfigurationError: guest and SSD do not go together, or a value that no guest can have.
        """
        testbed, ssd = config["testbed"], config.get(SECTION)
        if testbed["name"] != NAME:
            if ssd is not None:
                name = config["storage"]["name"]
                raise ConfigurationError(
                    f"storage={name} is an emulated SSD and is there in a guest alone; add testbed=guest"
                )
            return None
        if ssd is None:
            raise ConfigurationError("testbed=guest measures an emulated SSD; add storage=ssd_a or storage=ssd_b")
        size = {key: value for key, value in testbed.items() if key != "name"}
        settings = cls(**size, ssd_name=config["storage"]["name"], ssd=EmulatedSsd.from_mapping(ssd))
        if config["storage"]["iopoll"] and not settings.poll_queues:
            raise ConfigurationError(
                "storage.iopoll=true polls for completions and the guest has no queues for that; add "
                "testbed.poll_queues=2, or leave iopoll false"
            )
        return settings

    def __post_init__(self) -> None:
        if self.lru not in LRUS:
            raise ConfigurationError(f"testbed.lru={self.lru} is not known; use one of {', '.join(LRUS)}")
        for name, least in (("cpus", 1), ("memory_mib", 512)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ConfigurationError(f"testbed.{name}={value} is no size of a guest; give {least} or more")
        if not re.fullmatch(r"linux-image-[a-z0-9.+-]+", str(self.kernel)):
            raise ConfigurationError(
                f"testbed.kernel={self.kernel} is no package of a kernel; give a meta package such as {META_PACKAGE}"
            )
        most = min(self.cpus, self.ssd.queue_pairs - 1)  # the driver's own bounds (drivers/nvme/host/pci.c)
        if not isinstance(self.poll_queues, int) or not 0 <= self.poll_queues <= most:
            raise ConfigurationError(
                f"testbed.poll_queues={self.poll_queues} is not possible with testbed.cpus={self.cpus} and "
                f"emulated_ssd.queue_pairs={self.ssd.queue_pairs}; give 0 to {most}"
            )

    def identity(self) -> dict[str, Any]:
        """Return plain data for the configuration's hash.

        Settings added later enter it only when they differ from their default, so old hashes stay valid.
        """
        later = {"poll_queues": 0, "kernel": META_PACKAGE}
        plain = dataclasses.asdict(self)
        return {name: value for name, value in plain.items() if name not in later or value != later[name]}
