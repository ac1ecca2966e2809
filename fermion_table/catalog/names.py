"""The rules of names: of tables, namespaces and snapshots of a catalog, and of their directories.

A name is written ``db.events``; a part that holds a dot or a backtick is quoted, as in SQL:
``db.`a.b` ``. Namespaces are directories, so their parts must be names of directories. A table may
have any name: where that is no good name for a directory, the table lies elsewhere, in a directory
whose name is derived from the table's and never read as one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import check_text, check_texts, described

CATALOG_DIRECTORY = "_catalog"
"""What a catalog keeps of itself, in the warehouse; no namespace or table has this name."""
TABLES_PATH = f"{CATALOG_DIRECTORY}/tables"
SNAPSHOTS_PATH = f"{CATALOG_DIRECTORY}/snapshots"
DATA_PATH = f"{CATALOG_DIRECTORY}/data"
CREATED_PATH = f"{CATALOG_DIRECTORY}/created"

PART_BYTES_MAX = 255
PARTS_MAX = 16
_ESCAPED_MAX = 60

Name = str | Sequence[str]
"""A name as text, ``db.events``, or its parts, ``("db", "events")``."""

_PARTS = re.compile(r"(?:`((?:[^`]|``)*)`|([^.`]+))(?:\.(?!\Z)|\Z)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DIRECTORY = re.compile(r"(?!\.)[^/\\:?#%*\[\]\x00-\x1f\x7f]+")
_TABLE_DIRECTORY = re.compile(r"(?!\.)[^/\\:\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """The name of a table.

    namespace: Its parts; none: the warehouse itself.
    """

    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return quoted((*self.namespace, self.name))

    @property
    def key(self) -> tuple[str, str]:
        """The key of its row in the list of tables."""
        return quoted(self.namespace), self.name


def table_name(value: Name, parameter: str = "name") -> TableName:
    """The name of a table, checked.

    Raises TypeError: Neither text nor texts.
    Raises InvalidArgumentError: A part is empty, too long or holds control characters; a part of
        the namespace can't be the name of a directory; or the name is the catalog's own.
    """
    *namespace, name = _parts(value, parameter)
    found = TableName(check_namespace(namespace, parameter), name)
    if not namespace and name == CATALOG_DIRECTORY:
        raise InvalidArgumentError(f"{parameter}={name!r}: the catalog itself lies there")
    return found


def namespace_parts(value: Name, parameter: str = "namespace") -> tuple[str, ...]:
    """The parts of a namespace, checked; raises as `table_name`."""
    return check_namespace(_parts(value, parameter), parameter)


def quoted(parts: Iterable[str]) -> str:
    """Parts as a name: with dots between them, quoted where that is needed."""
    return ".".join(
        f"`{part.replace('`', '``')}`" if "." in part or "`" in part else part for part in parts
    )


def parts_of(text: str) -> tuple[str, ...]:
    """The parts of what `quoted` made; none of an empty text."""
    return tuple(_split(text)) if text else ()


def is_directory_name(name: str) -> bool:
    """Whether a name can be that of a directory, on a disk and in a URL."""
    return _DIRECTORY.fullmatch(name) is not None and len(name.encode()) <= PART_BYTES_MAX


def is_table_directory(name: str) -> bool:
    """Whether a table that lies in a directory of this name has the name, as SQL may have made it.

    The catalog itself makes only those of `is_directory_name`.
    """
    return _TABLE_DIRECTORY.fullmatch(name) is not None


def directory_of(name: TableName, number: int = 0) -> str:
    """The directory, within the warehouse, of the n-th table that gets a name.

    The first one lies at the name itself. Later ones, while the first is still there under another
    name or dropped without purge, have a directory of the catalog, as have names that can't be
    directories.
    """
    if number == 0 and is_directory_name(name.name):
        return "/".join([*name.namespace, name.name])
    text = str(name)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    readable = quote(text, safe="").replace("%", "_").replace("~", "_")[:_ESCAPED_MAX]
    return f"{DATA_PATH}/{readable}-{digest}-{number}"


def places_of(name: TableName, number: int = 0) -> list[str]:
    """Where the n-th table of a name may lie that is in no list, as the catalog or SQL made it."""
    made = directory_of(name, number)
    is_other = number == 0 and not is_directory_name(name.name) and is_table_directory(name.name)
    return [made, "/".join([*name.namespace, name.name])] if is_other else [made]


def is_own_path(path: str) -> bool:
    """Whether a path in a warehouse, or a location elsewhere, is a catalog's own.

    So is everything in the directory of a catalog but the tables that lie in its data. Of another
    catalog's only the lists are known.
    """
    parts = path.replace("\\", "/").rstrip("/").split("/")
    if parts[0] == CATALOG_DIRECTORY:
        return len(parts) != 3 or parts[1] != "data"
    own = (CATALOG_DIRECTORY, TABLES_PATH, SNAPSHOTS_PATH, DATA_PATH)
    return "/".join(parts[-2:]) in own or parts[-1] == CATALOG_DIRECTORY


def _parts(value: Name, parameter: str) -> tuple[str, ...]:
    if isinstance(value, str):
        parts = tuple(_split(check_text(value, parameter), parameter))
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        parts = check_texts(value, parameter)
    else:
        raise TypeError(
            f"{parameter}: expected a name such as 'db.events', found {described(value)}"
        )
    if not 1 <= len(parts) <= PARTS_MAX:
        raise InvalidArgumentError(
            f"{parameter}={value!r}: expected 1 to {PARTS_MAX} parts, found {len(parts)}"
        )
    for part in parts:
        if not part or len(part.encode()) > PART_BYTES_MAX or _CONTROL.search(part):
            raise InvalidArgumentError(
                f"{parameter}={value!r}: expected parts of 1 to {PART_BYTES_MAX} bytes without "
                f"control characters, found {part[:80]!r}"
            )
    return parts


def _split(text: str, parameter: str = "name") -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(text) or not found:
        match = _PARTS.match(text, at)
        if match is None:
            raise InvalidArgumentError(
                f"{parameter}={text!r}: expected a name such as db.events; a part that holds a dot "
                "or a backtick goes in backticks, and a backtick is doubled there"
            )
        part = match[2] if match[1] is None else match[1].replace("``", "`")
        found.append(part)
        at = match.end()
    return found


def check_namespace(parts: Sequence[str], parameter: str = "namespace") -> tuple[str, ...]:
    """The parts of a namespace, if each can be the name of a directory; none: the warehouse.

    Raises InvalidArgumentError.
    """
    for part in parts:
        if not is_directory_name(part):
            raise InvalidArgumentError(
                f"{parameter}: {part!r} can't be a namespace: namespaces are directories, whose "
                "names do not begin with a dot and hold none of / \\ : ? # % * [ ]"
            )
    if parts and parts[0] == CATALOG_DIRECTORY:
        raise InvalidArgumentError(
            f"{parameter}: {CATALOG_DIRECTORY!r} can't be a namespace: the catalog lies there"
        )
    return tuple(parts)
