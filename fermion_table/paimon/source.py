"""pypaimon, which is optional: its versions, and tables by path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from fermion.errors import InvalidArgumentError

VERSIONS = ("2.1",)
"""Versions of pypaimon whose inner parts were tried: it has no public ones for what is needed."""


def load_pypaimon(where: str) -> None:
    """Check that pypaimon is there, in a version that is known.

    Raises InvalidArgumentError: It is not installed, or is another version.
    """
    try:
        found = metadata.version("pypaimon")
    except metadata.PackageNotFoundError:
        raise InvalidArgumentError(
            f"{where}: needs pypaimon: pip install 'fermion[paimon]'"
        ) from None
    if ".".join(found.split(".")[:2]) not in VERSIONS:
        raise InvalidArgumentError(
            f"{where}: expected pypaimon {' or '.join(VERSIONS)}, found {found}"
        )


def paimon_table(source: Any, options: Mapping[str, str] | None, where: str) -> Any:
    """A table of pypaimon: the one given, or that of a directory.

    options: Of the storage, for a directory.
    where: What needs it, for messages.
    Raises InvalidArgumentError: See `load_pypaimon`; or no table is there.
    Raises TypeError: Neither a table nor a path.
    """
    is_path = isinstance(source, (str, os.PathLike))
    if not is_path and not (hasattr(source, "schema_manager") and hasattr(source, "tag_manager")):
        found = type(source).__name__
        raise TypeError(f"source: expected a table of pypaimon or its directory, found {found}")
    load_pypaimon(where)
    if not is_path:
        return source
    from pypaimon.table.file_store_table import FileStoreTable  # optional

    path = os.fspath(source)
    try:
        return FileStoreTable.from_path(path, dict(options or {}))
    except (ValueError, FileNotFoundError) as error:
        raise InvalidArgumentError(f"{path}: expected a table of Paimon: {error}") from error
