"""The errors of the table layer.

TableError (a fermion.FermionError)
├── TableNotFound          no table at this location; also a FileNotFoundError
├── TableExists            a table is there already; also a FileExistsError
├── MissingDataFile        a snapshot names a file that is gone; also a FileNotFoundError
├── VersionNotFound        no such snapshot, tag, branch or time; also a LookupError
├── SchemaMismatch         data and table do not match, field by field; also a ValueError
├── CommitConflict         a concurrent commit makes this one impossible; nothing was published
├── CommitStateUnknown     the reply was lost: the commit may or may not have been published
├── UnsupportedFeature     the table needs a newer reader or writer
├── ColumnFunctionError    a function of add_columns_with failed; has what was computed so far
├── UnsafeStorage          an unknown storage, no create-if-absent, or a path out of the table
├── CorruptMetadata        a metadata object differs from its reference; also a ValueError
└── UnreadableMetadata     an object that this version can't read was not stored; a ValueError

A wrong argument raises `fermion.errors.InvalidArgumentError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fermion.errors import FermionError

FILES_SHOWN_MAX = 5


class TableError(FermionError):
    """Root of every error of the table layer."""


class TableNotFound(TableError, FileNotFoundError):
    """There is no table at this location."""


class MissingDataFile(TableError, FileNotFoundError):
    """A file that a snapshot names is gone, though the snapshot has not expired."""


class TableExists(TableError, FileExistsError):
    """A table exists at this location already."""


class VersionNotFound(TableError, LookupError):
    """A snapshot, tag, branch or time that does not exist or has expired."""


class SchemaMismatch(TableError, ValueError):
    """Data do not match the table's schema; the message shows the difference field by field."""


class CommitConflict(TableError):
    """A concurrent commit makes this commit impossible. Nothing was published.

    Attributes
    ----------
    mine, theirs
        Operation of each commit, as text ("delete", "compact (snapshot 7)").
    files
        Paths of the data files that both changed.
    """

    def __init__(
        self, message: str, *, mine: str = "", theirs: str = "", files: Iterable[str] = ()
    ) -> None:
        super().__init__(message)
        self.mine = mine
        self.theirs = theirs
        self.files = tuple(files)

    def __str__(self) -> str:
        text = str(self.args[0])
        if self.files:
            shown = ", ".join(self.files[:FILES_SHOWN_MAX])
            more = len(self.files) - FILES_SHOWN_MAX
            text += f"; files: {shown}" + (f" and {more} more" if more > 0 else "")
        return text


class CommitStateUnknown(TableError):
    """It is not known whether the commit was published; none of its files was deleted.

    Commit again with the same ``commit_user`` and ``commit_identifier``: the pair is
    committed once.
    """


class UnsupportedFeature(TableError):
    """The table needs a feature or a format version that this reader or writer does not support."""


class ColumnFunctionError(TableError):
    """A function that computes columns raised, or did not give what it should. Nothing was
    published.

    Attributes
    ----------
    file
        The data file whose rows it was given.
    rows
        Numbers of the first of these rows in the file, and of the one after the last.
    finished
        The columns of the files that were finished before: `Table.add_columns_with` takes it as
        ``resume=``, and computes the other files.
    """

    def __init__(
        self, message: str, *, file: str = "", rows: tuple[int, int] = (0, 0), finished: Any = None
    ) -> None:
        super().__init__(message)
        self.file = file
        self.rows = rows
        self.finished = finished


class UnsafeStorage(TableError):
    """The storage is unknown or has no create-if-absent, or a path leads out of the table."""


class CorruptMetadata(TableError, ValueError):
    """A metadata object differs from its reference or from the format.

    Attributes
    ----------
    path
        The object, relative to the table.
    expected, found
        The expected and the found content, as text.
    hint
        What the user can do, or empty.
    """

    def __init__(self, path: str, expected: str, found: str, hint: str = "") -> None:
        super().__init__(path, expected, found, hint)
        self.hint = hint
        self.path = path
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        text = f"{self.path}: expected {self.expected}, found {self.found}"
        return f"{text}; {self.hint}" if self.hint else text


class UnreadableMetadata(TableError, ValueError):
    """A metadata object that this version could not read again was not stored.

    It was not stored, and nothing was published.
    """
