"""Tables that were created and have no row in the list of tables yet.

A table that lies in the directory of a name without a row has the name, so a create need not
commit one. It leaves a note, an object whose name alone says something, so that who lists the
tables looks into that directory. Many notes become rows by one commit, and go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote

from fermion.errors import InvalidArgumentError
from fermion_table.catalog.names import CREATED_PATH, TableName, is_directory_name, table_name
from fermion_table.catalog.warehouse import Warehouse
from fermion_table.errors import CorruptMetadata
from fermion_table.storage.paths import SEGMENT_CHARACTERS_MAX

_NOTE = re.compile(r"[0-9a-f]{32}-(.+)\.json")


class Creations:
    """The notes of a warehouse."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._store = warehouse.root

    def add(self, name: TableName, uuid: str) -> bool:
        """Note a table that was made in the directory of its name; False: such a name needs a row.

        Raises OSError: Nothing was noted.
        """
        file = f"{uuid}-{quote(str(name), safe='').replace('%', '=')}.json"
        if not is_directory_name(name.name) or len(file) > SEGMENT_CHARACTERS_MAX:
            return False
        self._store.write(f"{CREATED_PATH}/{file}", b"{}")
        return True

    def noted(self) -> dict[str, TableName]:
        """The names to look for, by the notes' paths. Their tables may be gone.

        Raises CorruptMetadata: A note holds no name, or that of no directory.
        """
        found: dict[str, TableName] = {}
        for path, text in self._texts():
            name = _name_of(text)
            if name is None:
                expected = "the name of a table whose directory has it"
                raise CorruptMetadata(path, expected, repr(text), hint="repair() deletes it")
            found[path] = name
        return found

    def wrong(self) -> list[str]:
        """The paths of notes that `noted` does not take."""
        return [path for path, text in self._texts() if _name_of(text) is None]

    def _texts(self) -> Iterator[tuple[str, str]]:
        for each in self._store.list(CREATED_PATH):
            match = _NOTE.fullmatch(each.path.rpartition("/")[2])
            if match is not None:
                yield each.path, unquote(match[1].replace("=", "%"))

    def forget(self, paths: Iterable[str]) -> None:
        """Delete notes."""
        for path in paths:
            self._store.delete(path)


def _name_of(text: str) -> TableName | None:
    """A name whose directory no other name has; None: a text means none."""
    try:
        name = table_name(text)
    except InvalidArgumentError:
        return None
    return name if is_directory_name(name.name) else None
