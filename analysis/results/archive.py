"""Archives of results: `NAME.tar.xz` files that hold runs as <experiment>/<point>/rep-N/FILE."""

from __future__ import annotations

import functools
import lzma
import re
import tarfile
import tempfile
from pathlib import Path

from analysis.results.documents import ResultsError

SUFFIX = ".tar.xz"
FILE_OF_A_RUN = re.compile(r"(?:[^./][^/]*/){2}rep-\d+/[^./][^/]*")


def archives(results: Path) -> list[Path]:
    """Return `results` where it is an archive itself, else the archives that lie in this folder."""
    return [results] if results.is_file() and results.name.endswith(SUFFIX) else sorted(results.glob(f"[!.]*{SUFFIX}"))


def unpacked(archive: Path) -> Path:
    """Return a temporary folder with the runs of an archive. It is deleted when this process ends.

    Raises:
        ResultsError: the archive is damaged.
    """
    return Path(_unpacked(archive.resolve()).name)


@functools.cache
def _unpacked(archive: Path) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="dualblade-results-")
    try:
        with tarfile.open(archive, "r:xz") as members:
            for member in members:
                if member.isfile() and FILE_OF_A_RUN.fullmatch(member.name):
                    _write(Path(folder.name, member.name), members, member)
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        folder.cleanup()
        raise ResultsError(f"{archive} is damaged ({' '.join(str(error).split())}); copy it again") from None
    return folder


def _write(path: Path, members: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    content = members.extractfile(member)
    assert content is not None  # it is a file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.read())
