"""What a writer hands to the commit of its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion_table.metadata import pointers
from fermion_table.metadata.manifest import Entry
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import AtomicStore


class WriterMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, weakref=True):
    """The files of one writer; small and picklable. `Table.commit` commits it.

    Attributes
    ----------
    entries
        Its data files, and changelog files.
    schema_id
        The schema they were written with.
    table_uuid
        The table they belong to.
    base_id, branch
        A snapshot of a branch that was there before the writer began: no commit up to it can have
        added the files. None: not known.
    schema_digest
        Of their schema, which tells it from another branch's of the same id. None: not known.
    """

    entries: tuple[Entry, ...] = ()
    schema_id: int = 0
    table_uuid: str = ""
    base_id: int | None = None
    branch: str = MAIN
    schema_digest: str | None = None

    __repr__ = short_repr

    @property
    def rows(self) -> int:
        """Rows in all data files."""
        return sum(entry.rows for entry in self.entries if not entry.is_changelog)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the messages of a writer say beside its files.

    Attributes
    ----------
    schema
        What the files are written with.
    table_uuid, base_id, branch
        See `WriterMessage`.
    """

    schema: TableSchema
    table_uuid: str
    base_id: int | None
    branch: str

    @classmethod
    def of(
        cls,
        store: AtomicStore,
        schema: TableSchema,
        table_uuid: str,
        base_id: int | None,
        branch: str,
    ) -> Origin:
        """Of a writer that begins now; a base of None: the latest snapshot is looked up."""
        base_id = pointers.read_latest(store, branch) if base_id is None else base_id
        return cls(schema, table_uuid, base_id, branch)

    def message(self, entries: Iterable[Entry]) -> WriterMessage:
        """The message that names some files."""
        return WriterMessage(
            entries=tuple(entries),
            schema_id=self.schema.id,
            table_uuid=self.table_uuid,
            base_id=self.base_id,
            branch=self.branch,
            schema_digest=self.schema.digest,
        )


def aborted() -> InvalidArgumentError:
    """The error for a writer that was aborted, and is asked for its messages."""
    return InvalidArgumentError(
        "the writer was aborted, and has deleted its files: create a new one"
    )


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
    if message.schema_digest not in (None, schema.digest):
        raise InvalidArgumentError(
            f"{where}: a message of branch {message.branch!r}: branch {branch!r} never had the "
            f"schema that its files were written with, and has another one of id {schema.id}"
        )
