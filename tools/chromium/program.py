"""Where Chromium is: on the path, or of Debian's packages, unpacked in ``build``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from tools.debian import library_path, unpacked
from tools.servers import NotAvailableError

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium-headless-shell",)
# What it depends on, but for programs that start others on a desktop.
NEEDED = r"chromium|lib|fonts"


@dataclass(frozen=True, slots=True)
class Program:
    """A browser: its path, and the environment that it runs in."""

    path: str
    environment: Mapping[str, str]


def find_program() -> Program:
    """The browser; the first call downloads it where none is on the path.

    Raises
    ------
    NotAvailableError
        None is installed, and it can't be downloaded.
    """
    for name in PROGRAMS:
        found = shutil.which(name)
        if found is not None:
            return Program(found, os.environ)
    try:
        root = unpacked("chromium", PACKAGES, needed=NEEDED)
    except NotAvailableError as error:
        raise NotAvailableError(
            f"{' or '.join(PROGRAMS)} is not on the path, and {error}"
        ) from None
    program = root / "usr/lib/chromium/chromium-headless-shell"
    return Program(str(program), {**os.environ, "LD_LIBRARY_PATH": library_path(root)})
