"""Debian's packages, downloaded by apt-get and unpacked in ``build``: nothing is installed.

This needs no root: programs run from where their packages were unpacked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.servers import NotAvailableError

BUILD = Path(__file__).resolve().parents[1] / "build"
DOWNLOAD_SECONDS_MAX = 300


def unpacked(
    name: str, packages: Sequence[str], *, needed: str = "", programs: Sequence[str] = ()
) -> Path:
    """The folder that packages are unpacked in; the first call downloads them.

    Parameters
    ----------
    name
        Of the folder in ``build``.
    packages
        What is wanted; what they depend on comes along, unless it is installed.
    needed
        Pattern of the packages that are taken, from the beginning of their names.
    programs
        Programs of the machine that the unpacked ones need.

    Raises
    ------
    NotAvailableError
        They can't be downloaded; the message says why.
    """
    root = BUILD / name / "root"
    if root.exists():
        return root
    for tool in ("apt-get", "dpkg-deb", *programs):
        if shutil.which(tool) is None:
            raise NotAvailableError(
                f"without {tool} Debian's packages of {', '.join(packages)} can't be used"
            )
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent, prefix="draft-") as draft:
        _unpack(_download(Path(draft), packages, re.compile(needed)), root)
    return root


def library_path(root: Path) -> str:
    """``LD_LIBRARY_PATH`` of programs in packages that are unpacked in a folder."""
    folders = [folder for top in ("lib", "usr/lib") for folder in root.glob(f"{top}/*-linux-gnu*")]
    # Some packages keep their own libraries in a folder below.
    own = {file.parent for folder in folders for file in folder.glob("*/lib*.so*")}
    return os.pathsep.join(map(str, [*folders, *sorted(own)]))


def _download(folder: Path, packages: Sequence[str], needed: re.Pattern[str]) -> list[Path]:
    """Packages, by lists of what there is: the system's, or fresh ones where those are too old."""
    fresh = ["-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    said = ""
    for options in ([], fresh):
        try:
            if options:
                _apt(folder, *options, "update")
            plan = _apt(folder, *options, "-s", "--no-install-recommends", "install", *packages)
            names = re.findall(r"(?m)^Inst (\S+)", plan)
            _apt(folder, *options, "download", *[each for each in names if needed.match(each)])
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = str(error.stderr or error).strip()[-500:]
        else:
            return sorted(folder.glob("*.deb"))
    raise NotAvailableError(f"Debian's packages {', '.join(packages)} can't be downloaded: {said}")


def _apt(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["apt-get", "-q", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=DOWNLOAD_SECONDS_MAX,
    ).stdout


def _unpack(packages: Sequence[Path], root: Path) -> None:
    """Unpack packages beside the root, which appears whole."""
    draft = packages[0].parent / "root"
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", package, draft], check=True)
    try:
        draft.rename(root)
    except OSError:  # another process was first
        if not root.exists():
            raise
