"""The command line of `experiments.run`: overrides for Hydra, our own few options, and options that Hydra answers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import hydra

from dualblade.errors import ConfigurationError
from experiments.points.sweep import CONF, register_resolvers

ANSWERED_BY_HYDRA = frozenset(
    ["--help", "-h", "--hydra-help", "--version", "--cfg", "-c", "--info", "-i", "--shell-completion", "-sc"]
)


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line. With `asks_hydra`, Hydra reads the words itself."""

    overrides: list[str]
    multirun: bool = False
    dry_run: bool = False
    asks_hydra: bool = False

    @classmethod
    def parse(cls, words: Sequence[str]) -> CommandLine:
        """Sort the words, wherever they stand.

        Raises:
            ConfigurationError: an option is not known, or `--config-dir` names no folder.
        """
        if any(word.partition("=")[0] in ANSWERED_BY_HYDRA for word in words):
            return cls([], asks_hydra=True)
        ours, unknown = _parser().parse_known_intermixed_args(words)
        if unknown:
            raise ConfigurationError(f"{unknown[0]} is not an option here; --help shows how points are described")
        return cls([*ours.overrides, *_search_path(ours.config_dir)], ours.multirun, ours.dry_run)


def ask_hydra() -> None:
    """Let Hydra answer `--help`, `--cfg job`, tab completion and the like from the words of this process."""
    register_resolvers()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors then, and does not print them itself
    hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(lambda config: None)()


def _search_path(folder: Path | None) -> list[str]:
    """The override that lets Hydra find configuration files in another folder as well."""
    if folder is None:
        return []
    if not folder.is_dir():
        raise ConfigurationError(f"--config-dir {folder} is not a folder; give one that holds configuration files")
    return [f"hydra.searchpath=['file://{folder.absolute()}']"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--run", "-r", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--config-dir", "-cd", type=Path)
    return parser
