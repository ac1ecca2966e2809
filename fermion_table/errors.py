"""The errors of the table layer.

TableError (a fermion.FermionError)
├── TableNotFound          no table at this location; also a FileNotFoundError
├── TableExists            a table is there already; also a FileExistsError
├── VersionNotFound        no such snapshot, tag, branch or time; also a LookupError
├── SchemaMismatch         data and table disagree, field by field; also a ValueError
├── CommitConflict         another commit won and mine cannot follow it; nothing was published
├── CommitStateUnknown     the reply was lost: the commit may or may not have been published
├── UnsupportedFeature     the table needs a newer reader or writer
├── UnsafeStorage          the storage is unknown or creates nothing atomically, or a path leaves it
├── CorruptMetadata        a metadata object is not what its referrer says; also a ValueError
└── UnreadableMetadata     a metadata object that no reader would take was not stored; a ValueError

A call that no table could carry out raises `fermion.errors.InvalidArgumentError`.
"""

from __future__ import annotations

from collections.abc import Iterable

from fermion.errors import FermionError

FILES_SHOWN_MAX = 5


class TableError(FermionError):
    """Root of every error of the table layer."""


class TableNotFound(TableError, FileNotFoundError):
    """There is no table at this location."""


class TableExists(TableError, FileExistsError):
    """A table exists at this location already."""


class VersionNotFound(TableError, LookupError):
    """A snapshot, tag, branch or time that the table does not have (or no longer has)."""


class SchemaMismatch(TableError, ValueError):
    """Data and table schema disagree; the message shows the difference field by field."""


class CommitConflict(TableError):
    """Another commit came first, and this one cannot follow it. Nothing was published.

    Attributes
    ----------
    mine, theirs
        What each commit did, in words ("delete", "compact (snapshot 7)").
    files
        Data files, by path, that both wanted.
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
    """Whether the commit was published cannot be told; none of its files was deleted.

    Commit again with the same ``commit_user`` and ``commit_identifier``: the pair is
    published once.
    """


class UnsupportedFeature(TableError):
    """The table names a feature or a format version that this reader or writer lacks."""


class UnsafeStorage(TableError):
    """The storage is unknown or can't create a file if absent, or a name leads out of the table."""


class CorruptMetadata(TableError, ValueError):
    """A metadata object differs from what its referrer or the format says.

    Attributes
    ----------
    path
        The object, relative to the table.
    expected, found
        What should be there and what is, in words.
    hint
        What can be done, if anything.
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
    """A metadata object was about to be stored that this version could not read again.

    It was not stored, and nothing was published.
    """
