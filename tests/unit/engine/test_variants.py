"""The engine's table of variants and the harness's files say the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml

from dualblade.config.run import VariantConfig
from dualblade.config.variants import VARIANTS, variant_named
from dualblade.errors import ConfigurationError
from tests.support.checkout import CHECKOUT

FILES = sorted((CHECKOUT / "conf" / "variant").glob("*.yaml"))


def test_the_four_points_are_those_of_the_paper() -> None:
    assert {(v.name, v.knob, v.overflow) for v in VARIANTS.values()} == {
        ("baseline", "all", "leave"),
        ("cachepolicy_only", "budget", "evict"),
        ("nvme_direct_only", 0, "direct"),
        ("dual_blade", "budget", "direct"),
    }


def test_each_has_its_file() -> None:
    assert {path.stem for path in FILES} == set(VARIANTS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_means_what_the_name_means(path: Path) -> None:
    settings = dataclasses.asdict(VariantConfig(**yaml.safe_load(path.read_text())))
    assert settings == dataclasses.asdict(variant_named(path.stem))


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'dualblade' is not known; use one of baseline, .*dual_blade"):
        variant_named("dualblade")
