"""Where generated data and the libraries' files of it lie: a cache inside the project."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("FERMION_BENCH_CACHE", PROJECT / "benchmarks" / "cache"))


@cache
def edition(package: str) -> str:
    """What makes a stored file stale: a package's version; of our own, every line of it."""
    if package != "fermion":
        return importlib.metadata.version(package)
    digest = hashlib.sha256()
    for folder in ("fermion", "fermion_table"):
        for file in sorted((PROJECT / folder).rglob("*.py*")):
            if file.suffix in {".py", ".pyx", ".pxi"}:
                digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def made(folder: Path, name: str, make: Callable[[Path], None]) -> Path:
    """A file or directory, made if it is not there yet; half of one never keeps the name."""
    target = folder / name
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{os.getpid()}.{name}"
        make(draft)
        os.replace(draft, target)
    return target


def remove(path: Path) -> None:
    """Remove a file or a directory that a write left."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a directory."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
