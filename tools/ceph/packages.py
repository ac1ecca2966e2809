"""Ceph's programs: those on the path, or of Debian's packages, unpacked in ``build``."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tools.debian import library_path, unpacked
from tools.servers import NotAvailableError

PACKAGES = ("ceph-mon", "ceph-osd", "radosgw")
PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
# What they depend on, but for tools that only those who keep a cluster on disks need.
NEEDED = r"ceph|lib|radosgw|python3-(?!minimal)"
SYSTEM_PYTHON = "/usr/bin/python3"
"""That of Debian, which the program ``ceph`` and the packages' modules are made for."""


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
            environment["LD_LIBRARY_PATH"] = library_path(self.root)
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
    try:
        return Programs(unpacked("ceph", PACKAGES, needed=NEEDED, programs=[SYSTEM_PYTHON]))
    except NotAvailableError as error:
        raise NotAvailableError(
            f"Ceph's programs ({', '.join(PROGRAMS)}) are not on the path, and {error}"
        ) from None
