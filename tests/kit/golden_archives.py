"""Golden tables and warehouses: a ZIP archive each, beside the sums of all files that they hold.

``unzip -l ARCHIVE`` lists one; ``unzip -p ARCHIVE FILE`` shows a file of it.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

SUMS = "SHA256SUMS"
FIRST_TIME = (1980, 1, 1, 0, 0, 0)  # of every file, so that archives depend on contents alone


def archive_of(folder: Path, name: str) -> Path:
    """Where the archive of a golden table lies."""
    return folder / f"{name}.zip"


def pack(directory: Path, folder: Path) -> Path:
    """Write the archive of a directory, which must not be there yet, and note the sums."""
    target = archive_of(folder, directory.name)
    with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                name = path.relative_to(directory.parent).as_posix()
                archive.writestr(_entry(name), path.read_bytes())
    with (folder / SUMS).open("a", encoding="utf-8") as sums:
        sums.writelines(f"{line}\n" for line in sums_of(target))
    return target


def unpack(folder: Path, name: str, target: Path) -> Path:
    """Unpack a golden table into a directory; return its own directory there."""
    with zipfile.ZipFile(archive_of(folder, name)) as archive:
        archive.extractall(target)
    return target / name


def sums_of(path: Path) -> list[str]:
    """A line for each file of an archive, as ``sha256sum`` writes it."""
    with zipfile.ZipFile(path) as archive:
        return [
            f"{hashlib.sha256(archive.read(name)).hexdigest()}  {name}"
            for name in archive.namelist()
        ]


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, FIRST_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
