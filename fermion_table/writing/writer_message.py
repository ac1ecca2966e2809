"""What a writer is told, and what it hands to the commit of its files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import msgspec

import fermion
from fermion.arguments import integer
from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.argument_checks import check_bool, check_kind
from fermion_table.metadata import pointers
from fermion_table.metadata.manifest import Entry, Source
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.buffer_pool import BufferPool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How data files are written.

    Attributes
    ----------
    target_file_bytes
        A new file is begun when one has about this size; None takes the table's property.
    file_options
        Of every file; None takes the table's profile.
    threads
        That encode a file; None takes those of the file options.
    source
        What the entries say wrote them.
    keeps_order
        Whether rows are written in the order they come in, whatever the table's sort order.
    buffer_pool
        Of a table with a primary key: memory that the writer shares with other ones; None: it has
        a pool of its own, of the table's ``write_buffer_size``.
    """

    target_file_bytes: int | None = None
    file_options: fermion.WriteOptions | None = None
    threads: int | None = None
    source: Source = "append"
    keeps_order: bool = False
    buffer_pool: BufferPool | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if self.target_file_bytes is not None:
            size = integer(self.target_file_bytes, "target_file_bytes", minimum=1)
            object.__setattr__(self, "target_file_bytes", size)
        if self.file_options is not None:
            check_kind(self.file_options, fermion.WriteOptions, "file_options")
        if self.threads is not None:
            object.__setattr__(self, "threads", integer(self.threads, "threads", minimum=1))
        if self.source not in get_args(Source):
            expected = ", ".join(map(repr, get_args(Source)))
            raise InvalidArgumentError(f"source={self.source!r}: expected one of {expected}")
        object.__setattr__(self, "keeps_order", check_bool(self.keeps_order, "keeps_order"))
        if self.buffer_pool is not None:
            check_kind(self.buffer_pool, BufferPool, "buffer_pool")


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

    table_uuid, base_id, branch: See `WriterMessage`.
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

    schema: Of the message's schema id, on the branch that takes the files.
    branch, where: That branch, and the table's location.
    Raises InvalidArgumentError: Their columns would be read as others.
    """
    if message.branch == branch == MAIN:  # its history is one line: ids are unique
        return
    if message.schema_digest not in (None, schema.digest):
        raise InvalidArgumentError(
            f"{where}: a message of branch {message.branch!r}: branch {branch!r} never had the "
            f"schema that its files were written with, and has another one of id {schema.id}"
        )
