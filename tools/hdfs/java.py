"""How Hadoop's programs are started: Java, its options, and archives of loaded classes.

An archive halves what a start costs. Java makes it when a program ends by itself, so the first
cluster on a machine starts slowly, and leaves archives for the next ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.hdfs.jars import BUILD, class_path
from tools.servers import NotAvailableError

VERSION_MIN = 17
# Short lives are spent on compiling: the first compiler alone, one thread for garbage.
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xlog:disable")


class Java:
    """The Java of this machine with Hadoop's jars.

    Raises
    ------
    NotAvailableError
        Java or the jars are missing.
    """

    def __init__(self) -> None:
        self.program, version = _java()
        self._jars = class_path()
        states = [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in self._jars]
        text = "\n".join([version, *states])
        self._edition = hashlib.sha256(text.encode()).hexdigest()[:16]

    def command(
        self,
        configuration: Path,
        program: str,
        defined: Mapping[str, Any] | None = None,
        *,
        draft: Path | None = None,
    ) -> list[str]:
        """What starts a program.

        Parameters
        ----------
        configuration
            A jar with the files that it is configured by. (Archives take no folders.)
        program
            Its class.
        defined
            Settings, beside those of the configuration.
        draft
            Where it is to leave an archive if there is none yet.
        """
        path = os.pathsep.join(map(str, [*self._jars, configuration]))
        options = list(OPTIONS)
        archive = self._archive(program)
        if archive.exists():
            options.append(f"-XX:SharedArchiveFile={archive}")
        elif draft is not None:
            options.append(f"-XX:ArchiveClassesAtExit={draft}")
        settings = [f"-D{name}={value}" for name, value in (defined or {}).items()]
        return [self.program, *options, "-cp", path, program, *settings]

    def keep(self, program: str, draft: Path) -> None:
        """Take the archive that a program has left, if it has left one."""
        archive = self._archive(program)
        with contextlib.suppress(OSError):
            copy = archive.with_suffix(f".{os.getpid()}")
            shutil.move(draft, copy)
            copy.replace(archive)

    def _archive(self, program: str) -> Path:
        return BUILD / f"{program.rpartition('.')[2]}-{self._edition}.jsa"


def _java() -> tuple[str, str]:
    """The program, and what it says of its version."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else "java"
    if shutil.which(program) is None:
        raise NotAvailableError(
            f"HDFS needs Java {VERSION_MIN} or newer, and there is no {program}"
        )
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    version = said.partition('version "')[2].partition(".")[0].partition('"')[0]
    if not version.isdigit() or int(version) < VERSION_MIN:
        found = said.splitlines()[0] if said else "nothing"
        raise NotAvailableError(
            f"HDFS needs Java {VERSION_MIN} or newer, and {program} -version says: {found}"
        )
    return program, said
