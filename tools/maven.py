"""Files of Maven Central, downloaded once and kept in ``build``."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path

from tools.servers import NotAvailableError

MAVEN = "https://repo1.maven.org/maven2"
SECONDS_MAX = 60
"""Without an answer of Maven Central."""


def file_of_maven(path: str, sha256: str, folder: Path) -> Path:
    """A file of Maven Central; the first call downloads it.

    Parameters
    ----------
    path
        Below `MAVEN`.
    folder
        Where it is kept.

    Raises
    ------
    NotAvailableError
        It can't be downloaded, or is another one.
    """
    url, file = f"{MAVEN}/{path}", folder / path.rpartition("/")[2]
    if file.exists() and _sha256(file) == sha256:
        return file
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{file.name}.{os.getpid()}.part"
    try:
        with draft.open("wb") as to, urllib.request.urlopen(url, timeout=SECONDS_MAX) as reply:
            shutil.copyfileobj(reply, to)
        digest = _sha256(draft)
        if digest != sha256:
            raise NotAvailableError(f"{url}: expected SHA-256 {sha256}, found {digest}")
        draft.replace(file)
    except (urllib.error.URLError, OSError) as error:
        raise NotAvailableError(f"Maven Central is not reachable: {url}: {error}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
    return file


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
