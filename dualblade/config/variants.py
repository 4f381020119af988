"""The paper's four variants, each a point in the space of `VariantConfig`."""

from __future__ import annotations

from dualblade.config.run import VariantConfig
from dualblade.errors import ConfigurationError

VARIANTS = {
    variant.name: variant
    for variant in (
        VariantConfig("baseline", knob="all", overflow="leave"),
        VariantConfig("cachepolicy_only", knob="budget", overflow="evict"),
        VariantConfig("nvme_direct_only", knob=0, overflow="direct"),
        VariantConfig("dual_blade", knob="budget", overflow="direct", pipeline="adaptive"),
    )
}


def variant_named(name: str) -> VariantConfig:
    """Look a variant up.

    Raises:
        ConfigurationError: there is none of this name.
    """
    if name not in VARIANTS:
        raise ConfigurationError(f"variant {name!r} is not known; use one of {', '.join(VARIANTS)}, or a VariantConfig")
    return VARIANTS[name]
