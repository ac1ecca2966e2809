"""Ceph's programs: those on the path, or of Debian's packages, unpacked in ``build``.

Nothing is installed: apt-get downloads the packages, which need no root to be unpacked, and their
programs run from there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.servers import NotAvailableError

BUILD = Path(__file__).resolve().parents[2] / "build" / "ceph"
PACKAGES = ("ceph-mon", "ceph-osd", "radosgw")
PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
# What they depend on, but for tools that only those who keep a cluster on disks need.
NEEDED = re.compile(r"ceph|lib|radosgw|python3-(?!minimal)")
SYSTEM_PYTHON = "/usr/bin/python3"
"""That of Debian, which the program ``ceph`` and the packages' modules are made for."""
DOWNLOAD_SECONDS_MAX = 300


@dataclass(frozen=True, slots=True)
class Programs:
    """Where Ceph's programs lie.

    Attributes
    ----------
    root
        Where packages are unpacked; None: the programs are on the path.
    """

    root: Path | None

    def command(self, program: str, *arguments: str) -> list[str]:
        """The command that runs a program."""
        if self.root is None:
            return [program, *arguments]
        place = str(self.root / "usr" / "bin" / program)
        return [*([SYSTEM_PYTHON] if program == "ceph" else []), place, *arguments]

    def environment(self) -> dict[str, str]:
        """The environment that programs run in."""
        environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
        if self.root is not None:
            folders = [self.root / "lib", self.root / "usr" / "lib"]
            found = [str(each) for folder in folders for each in folder.glob("*-linux-gnu*")]
            found += [str(each) for each in self.root.glob("usr/lib/*-linux-gnu*/ceph")]
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(found)
            environment["PYTHONPATH"] = str(self.root / "usr/lib/python3/dist-packages")
        return environment

    def settings(self) -> dict[str, str]:
        """Settings of ``ceph.conf`` that say where plug-ins lie."""
        if self.root is None:
            return {}
        (libraries,) = {each.parent for each in self.root.glob("usr/lib/*/rados-classes")}
        return {
            "osd class dir": f"{libraries}/rados-classes",
            "erasure code dir": f"{libraries}/ceph/erasure-code",
            "plugin dir": f"{libraries}/ceph",
        }


def find_programs() -> Programs:
    """Ceph's programs; the first call downloads them where they are not on the path.

    Raises
    ------
    NotAvailableError
        They are not installed, and can't be downloaded.
    """
    if all(shutil.which(program) for program in PROGRAMS):
        return Programs(None)
    root = BUILD / "root"
    if not root.exists():
        for tool in ("apt-get", "dpkg-deb", SYSTEM_PYTHON):
            if shutil.which(tool) is None:
                raise NotAvailableError(
                    f"Ceph's programs ({', '.join(PROGRAMS)}) are not on the path, and without "
                    f"{tool} Debian's packages of them can't be used"
                )
        BUILD.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD, prefix="draft-") as draft:
            _unpack(_download(Path(draft)), root)
    return Programs(root)


def _download(folder: Path) -> list[Path]:
    """Packages, by lists of what there is: the system's, or fresh ones where those are too old."""
    fresh = ["-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    said = ""
    for options in ([], fresh):
        try:
            if options:
                _apt(folder, *options, "update")
            plan = _apt(folder, *options, "-s", "--no-install-recommends", "install", *PACKAGES)
            names = re.findall(r"(?m)^Inst (\S+)", plan)
            _apt(folder, *options, "download", *[each for each in names if NEEDED.match(each)])
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = str(error.stderr or error).strip()[-500:]
        else:
            return sorted(folder.glob("*.deb"))
    raise NotAvailableError(f"Debian's packages {', '.join(PACKAGES)} can't be downloaded: {said}")


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
