"""What a writer hands to the commit of its files."""

from __future__ import annotations

import msgspec

from fermion.errors import InvalidArgumentError
from fermion_table.metadata.manifest import Entry
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.paths import MAIN


class WriterMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The files of one writer; small and picklable. `Table.commit` commits it.

    Attributes
    ----------
    entries
        Its data files.
    schema_id
        The schema they were written with.
    table_uuid
        The table they belong to.
    base_id, branch
        A snapshot of a branch that was there before the writer began: no commit up to it can have
        added the files. None: not known.
    schema_time_ms
        When their schema was made, which tells it from another branch's of the same id. None: not
        known.
    """

    entries: tuple[Entry, ...] = ()
    schema_id: int = 0
    table_uuid: str = ""
    base_id: int | None = None
    branch: str = MAIN
    schema_time_ms: int | None = None

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(entry.rows for entry in self.entries)


def check_same_schema(message: WriterMessage, schema: TableSchema, branch: str, where: str) -> None:
    """Refuse files whose schema is another branch's, and has the id of one of this branch.

    Parameters
    ----------
    schema
        Of the message's schema id, on the branch that takes the files.
    branch, where
        That branch, and the table's location.

    Raises
    ------
    InvalidArgumentError
        Their columns would be read as others.
    """
    if message.branch == branch == MAIN:  # its history is one line: ids are unique
        return
    if message.schema_time_ms not in (None, schema.time_ms):
        raise InvalidArgumentError(
            f"{where}: a message of branch {message.branch!r}: branch {branch!r} never had the "
            f"schema that its files were written with, and has another one of id {schema.id}"
        )
