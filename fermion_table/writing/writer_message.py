"""What a writer is told, and what it hands to the commit of its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NoReturn, Self, get_args

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
from fermion_table.storage.owned_files import OwnedFiles
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


class OwningWriter(ABC):
    """What writers of a table have in common: they own their files until a commit does.

    Parameters as of `data_writer.DataWriter`; a base of None: the latest snapshot is looked up.
    """

    def __init__(
        self,
        store: AtomicStore,
        schema: TableSchema,
        table_uuid: str,
        base_id: int | None,
        branch: str,
        owned: OwnedFiles | None,
    ) -> None:
        self.schema = schema
        self._origin = WriterMessage(
            schema_id=schema.id,
            table_uuid=table_uuid,
            base_id=pointers.read_latest(store, branch) if base_id is None else base_id,
            branch=branch,
            schema_digest=schema.digest,
        )
        self._owned = OwnedFiles(store, owned)
        self._entries: list[Entry] = []
        self._finished = self._is_aborted = False

    def __reduce__(self) -> NoReturn:
        """Refuse a copy: both would own, and delete, the same files."""
        raise TypeError(
            f"a {type(self).__name__} can't be pickled or copied: pickle the Table and make a "
            "writer there, or pickle the messages of prepare_commit()"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if not self._finished:  # once there are messages, a commit may have named the files
            self.abort()

    def prepare_commit(self) -> list[WriterMessage]:
        """Write all rows, finish all files, and return the messages for `Table.commit`.

        Raises
        ------
        InvalidArgumentError
            The writer was aborted; or, of a table with a primary key, it has failed before, or a
            sum or product is out of range.
        """
        if not self._finished:
            self._finish()
            self._finished = True
        elif self._is_aborted:
            raise InvalidArgumentError(
                "the writer was aborted, and has deleted its files: create a new one"
            )
        message = msgspec.structs.replace(self._origin, entries=tuple(self._entries))
        self._owned.release(message)
        return [message]

    def abort(self) -> None:
        """Delete the files of this writer, but for those that were committed."""
        self._finished = self._is_aborted = True
        self._forget()
        self._owned.delete()
        self._entries.clear()

    @abstractmethod
    def _finish(self) -> None:
        """Write what waits, and close all files."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop what waits."""


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
