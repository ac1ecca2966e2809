"""Where the files of entries lie, and which files outside of a table it may name: one check.

The metadata of a table could make its readers open any path or URL. So a file outside of
the table's own directory is read only

- below a location that snapshot 0 says the table was cloned from (`CLONE_OF`, `CLONE_ROOTS`), in
  the directories that tables have (``data/``, ``deletion/``), on the table's own storage: same
  scheme and host, or a local disk both; or
- below a folder that the caller names (`StorageAccess.allowed_roots`), wherever that is.

Its location is absolute and normalised, and a local one a regular file, with links resolved. The
table's storage options go to the table's own storage alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from fermion.redaction import redacted
from fermion_table.errors import CorruptMetadata, UnsafeStorage
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import decode_snapshot
from fermion_table.storage.json_codec import read_decoded
from fermion_table.storage.paths import (
    DATA_DIRECTORY,
    DELETION_DIRECTORY,
    PATH_CHARACTERS_MAX,
    check_path,
    snapshot_path,
)
from fermion_table.storage.store import AtomicStore, access_of

CLONE_OF = "fermion.clone_of"
"""Property of a clone's snapshot 0: the location of its source."""
CLONE_TAG = "fermion.clone_tag"
"""Property of a clone's snapshot 0: the tag in the source that keeps its files."""
CLONE_ROOTS = "fermion.clone_roots"
"""Property of a clone's snapshot 0: a JSON list of the locations that its source's files lie in."""

CLONE_ROOTS_MAX = 1_000
UNQUOTED_MAX = 4
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
_NO_HOST = {"s3", "gs", "memory"}
"""Schemes whose URLs name a bucket where others name a host."""
_QUOTED = {"http", "https", "webhdfs"}
"""Schemes of which some server decodes percent signs."""


def clone_roots(properties: Mapping[str, str]) -> list[str]:
    """The locations that a table's files may lie in besides its own, by snapshot 0's properties.

    Raises CorruptMetadata.
    """
    source = properties.get(CLONE_OF)
    if source is None:
        return []
    import json  # few tables are clones

    text = properties.get(CLONE_ROOTS, "[]")
    try:
        further = json.loads(text)
    except ValueError:
        further = None
    if not isinstance(further, list) or not all(isinstance(each, str) for each in further):
        raise CorruptMetadata(snapshot_path(0), f"a JSON list of texts in {CLONE_ROOTS}", "other")
    if len(further) > CLONE_ROOTS_MAX:
        raise CorruptMetadata(
            snapshot_path(0), f"at most {CLONE_ROOTS_MAX} locations", str(len(further))
        )
    return [source, *further]


def place_of(location: str) -> tuple[str, str]:
    """The storage of a location: its scheme (empty on a local disk) and host.

    Buckets of one scheme share their endpoint and credentials: they are one storage.
    """
    chain, _, last = location.rpartition("::")
    if "://" not in last:
        return chain, ""
    try:
        parts = urlsplit(last)
    except ValueError:  # brackets that do not match: nothing that could be opened
        return location, ""
    scheme = _ALIASES.get(parts.scheme, parts.scheme)
    host = "" if scheme in _NO_HOST else parts.netloc
    if scheme == "abfs":  # container@account, or a container alone
        host = host.rpartition("@")[2] if "@" in host else ""
    return f"{chain}::{scheme}" if chain else scheme, host


def options_for(store: AtomicStore, location: str) -> dict[str, Any] | None:
    """The storage options to open a location with: the table's, if it lies on its storage."""
    if store.storage_options and place_of(location) != place_of(store.location):
        return None
    return store.storage_options


class SharedFiles:
    """Tells where the files of a table's entries lie."""

    def __init__(self, store: AtomicStore) -> None:
        self._store = store
        self._cloned: list[str] | None = None
        self._folders: dict[str, str] = {}

    def data(self, entry: Entry) -> str:
        """The location of an entry's data file.

        Raises UnsafeStorage: The table may not name this file.
        """
        if entry.external_path is None:
            return self._store.locate(entry.path)
        return self.checked(entry.external_path)

    def vector(self, entry: Entry) -> str:
        """The location of the file of an entry's deletion vector; empty if it has none.

        Raises UnsafeStorage.
        """
        if entry.deletion_vector is None:
            return ""
        path = entry.deletion_vector.path
        if not is_outside(path):
            return self._store.locate(path)
        if place_of(path) != place_of(entry.external_path or self._store.location):
            raise UnsafeStorage(
                f"{redacted(self._store.location)}: its metadata names the deletion vector "
                f"{redacted(path)!r}: expected it on the storage of its data file"
            )
        return self.checked(path)

    def shares_storage(self, entry: Entry) -> bool:
        """Whether an entry's files lie on the table's own storage."""
        if entry.external_path is None:
            return True
        return place_of(entry.external_path) == place_of(self._store.location)

    def checked(self, location: str) -> str:
        """A location outside of the table, if the table may name it.

        Raises UnsafeStorage.
        """
        why = _malformed(location)
        if why is None:
            for root in access_of(self._store).allowed_roots:
                if self._below(location, root) is not None:
                    return self._regular(location)
            why = self._foreign(location)
        if why is None:
            return self._regular(location)
        raise UnsafeStorage(
            f"{redacted(self._store.location)}: its metadata names {redacted(location)!r}, a file "
            f"outside of the table: {why}. If you trust the table, name the folder in "
            f"StorageAccess(allowed_roots=[...])"
        )

    def _foreign(self, location: str) -> str | None:
        """Why a table may not name a location by itself; None if it may."""
        if place_of(location) != place_of(self._store.location):
            return "it lies on another storage than the table"
        if self._cloned is None:
            self._cloned = _clone_roots(self._store)
        if not self._cloned:
            return "the table says of no table that it was cloned from it"
        for root in self._cloned:
            inner = self._below(location, root)
            if inner is not None and inner.startswith(_TABLE_FILES):
                check_path(inner)
                return None
        shown = ", ".join(redacted(root) for root in self._cloned[:3])
        return f"it is no data file of what the table was cloned from ({shown})"

    def _below(self, location: str, root: str) -> str | None:
        """The path of a location below a root, None if it does not lie there."""
        if place_of(location) != place_of(root) or _malformed(root) is not None:
            return None
        if not place_of(location)[0]:
            return _inner(self._resolved(location), os.path.realpath(root))
        return _inner(_path_of(location), _path_of(root))

    def _resolved(self, location: str) -> str:
        """A local path with links resolved; those of its directory once."""
        folder, name = os.path.split(location)
        resolved = self._folders.get(folder)
        if resolved is None:
            resolved = self._folders[folder] = os.path.realpath(folder)
        path = os.path.join(resolved, name)
        return os.path.realpath(path) if os.path.islink(path) else path

    def _regular(self, location: str) -> str:
        """A location, refused if it is a local one of something else than a file."""
        if place_of(location)[0]:
            return location
        path = self._resolved(location)
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            return path  # whoever opens it says so
        if not stat.S_ISREG(mode):
            raise UnsafeStorage(
                f"{self._store.location}: its metadata names {location!r}: expected a regular file"
            )
        return path


_TABLE_FILES = (f"{DATA_DIRECTORY}/", f"{DELETION_DIRECTORY}/")


def is_outside(path: str) -> bool:
    """Whether metadata name a file by its location, rather than by its path in the table."""
    return "://" in path or path.startswith("/") or os.path.isabs(path)


def _malformed(location: str) -> str | None:
    """Why a text is no absolute, normalised location; None if it is."""
    if not location or len(location) > PATH_CHARACTERS_MAX:
        return f"expected 1 to {PATH_CHARACTERS_MAX} characters"
    if any(ord(each) < 0x20 or each == "\x7f" for each in location):
        return "it holds control characters"
    scheme = place_of(location)[0]
    if not scheme:
        if not os.path.isabs(location) or os.path.normpath(location) != location:
            return "expected an absolute path without '.', '..' and empty names"
        return None
    if "::" in location and location.rpartition("::")[2].count("://") != 1:
        return "expected one URL at the end of the chain"
    path = _path_of(location)
    segments = path.split("/")
    if scheme in _QUOTED:
        if "?" in location or "#" in location:
            return "expected a URL without query and fragment"
        segments = _unquoted(path).replace("\\", "/").split("/")
    if "\\" in path or any(each in ("", ".", "..") for each in segments):
        return "expected a URL without '.', '..' and empty names"
    return None


def _unquoted(path: str) -> str:
    """A path with its percent signs decoded, also those that were encoded twice."""
    for _ in range(UNQUOTED_MAX):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
    return path


def _path_of(location: str) -> str:
    """What follows the host of a URL, the bucket included, without slashes at its ends."""
    last = location.rpartition("::")[2]
    rest = last.partition("://")[2]
    host = place_of(location)[1]
    return rest.removeprefix(host).strip("/")


def _inner(path: str, root: str) -> str | None:
    top = root.rstrip("/" + os.sep) + "/"
    return path[len(top) :] if path.replace(os.sep, "/").startswith(top) else None


def roots_of_clone(source: AtomicStore, entries: Sequence[Entry]) -> list[str]:
    """The locations, besides the source's own, that a clone of it shares files of."""
    if not any(entry.names_outside for entry in entries):
        return []
    roots = _clone_roots(source)
    allowed = access_of(source).allowed_roots
    return [*roots, *(root for root in allowed if root not in roots)]


def _clone_roots(store: AtomicStore) -> list[str]:
    """What the table of a store says that it was cloned from."""
    return clone_roots(creation_properties(store))


def creation_properties(store: AtomicStore) -> dict[str, str]:
    """The properties of a table's snapshot 0: a clone's name its source and its tag.

    Raises FileNotFoundError, OSError, CorruptMetadata, UnsupportedFeature.
    """
    path = snapshot_path(0)
    return read_decoded(store, path, lambda data: decode_snapshot(data, path)).properties
