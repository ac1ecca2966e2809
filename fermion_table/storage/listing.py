"""Every file below a directory of an fsspec file system; an error never shortens the listing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fermion.exports import LoadedWhenAskedFor

if TYPE_CHECKING:
    import fsspec
    from fsspec import asyn
else:  # asyncio comes along, which local tables do not need
    fsspec, asyn = LoadedWhenAskedFor("fsspec"), LoadedWhenAskedFor("fsspec.asyn")


def found_below(
    filesystem: fsspec.AbstractFileSystem, top: str, ask: Callable[..., Any]
) -> dict[str, dict[str, Any]]:
    """Files at any depth, by path, with what the file system says of each.

    fsspec's own walk leaves a directory out that it fails to list: it is not used. ``ask`` calls a
    method of the file system.

    Raises FileNotFoundError: There is no such directory.
    Raises OSError: The storage's own.
    """
    if not _walks(filesystem):
        found: dict[str, dict[str, Any]] = ask("find", top, detail=True)
        return found
    files: dict[str, dict[str, Any]] = {}
    waiting = list_directory(ask, top, files)
    while waiting:
        with contextlib.suppress(FileNotFoundError):  # deleted while listing
            waiting += list_directory(ask, waiting.pop(), files)
    return files


def _walks(filesystem: fsspec.AbstractFileSystem) -> bool:
    """Whether a file system's ``find`` is fsspec's generic one."""
    kind = type(filesystem)
    if isinstance(filesystem, asyn.AsyncFileSystem):
        return kind._find is asyn.AsyncFileSystem._find
    return kind.find is fsspec.AbstractFileSystem.find


def list_directory(
    ask: Callable[..., Any], folder: str, files: dict[str, dict[str, Any]]
) -> list[str]:
    """Put the files of one directory into ``files``; its directories come back."""
    folders = []
    for item in ask("ls", folder, detail=True):
        name = item["name"].rstrip("/")
        if item["type"] != "directory":
            files[name] = item
        elif name != folder.rstrip("/"):
            folders.append(name)
    return folders
