"""Finds out whether a storage creates an object only if it is absent, before a table relies on it.

What was found is remembered in the table, as ``probe/verdict.json``: processes that come later read
that one object. It counts for the location and the server that it names, so that a table copied
elsewhere is probed again. The objects that are raced for are deleted; where deleting is denied, few
are made, and they are orphan files.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol
from urllib.parse import urlsplit

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.dirfs import DirFileSystem

from fermion.redaction import redacted
from fermion_table.errors import UnsafeStorage
from fermion_table.moments import now_ms
from fermion_table.storage.paths import VERDICT_PATH, probe_path, unique_name
from fermion_table.storage.store import METADATA_BYTES_MAX, CreateResult

PROBE_THREADS = 8
PROBE_KEYS = 16
PROBE_KEYS_UNDELETABLE = 2
"""Keys to race for where what is created stays."""
INCONCLUSIVE_MAX = 20
"""Keys in a row that may prove nothing, as the reply to whoever created an object was lost."""
VERDICT_FORMAT = "fermion-probe"
VERDICT_BYTES_MAX = 64 * 1024
_KNOWN = {"gs", "gcs", "abfs", "abfss", "az", "hdfs"}
"""Protocols of services that document a conditional create, and have no other servers."""
_AWS = (".amazonaws.com", ".amazonaws.com.cn")


class Probed(Protocol):
    """What a probe needs of a store."""

    @property
    def location(self) -> str:
        """Of the table."""

    @property
    def filesystem(self) -> fsspec.AbstractFileSystem:
        """Where it lies."""

    def create(self, path: str, data: bytes) -> CreateResult:
        """The storage's own conditional create."""

    def read(self, path: str, stop: int = METADATA_BYTES_MAX) -> bytes:
        """The bytes of an object up to `stop`."""

    def put(self, path: str, data: bytes) -> None:
        """Store an object, whatever was there."""

    def remove(self, path: str) -> None:
        """Delete an object."""


def check_creates(store: Probed, *, renames: bool) -> None:
    """Refuse a storage where two writers could both create one object.

    renames: Whether creating is writing and renaming, rather than a way of the file system's own.
    Raises UnsafeStorage: Creating is look-then-write, is not offered, or lets two writers create
        one object.
    Raises OSError: The storage's own; or replies were lost so often that nothing is proven.
    """
    if not renames:
        refuse_look_then_write(store.filesystem, store.location)
    if _remembered(store):
        return
    run = unique_name()
    paths = (probe_path(run, number) for number in itertools.count())
    deletes = _refuses_the_second(store, paths)
    if not _is_documented(store.filesystem):
        _race(store, paths, PROBE_KEYS if deletes else PROBE_KEYS_UNDELETABLE)
    verdict = {"format": VERDICT_FORMAT, "format_version": 1, **_subject(store)}
    verdict["time_ms"] = now_ms()
    with contextlib.suppress(OSError):  # the next process probes again
        store.put(VERDICT_PATH, json.dumps(verdict).encode())


def _subject(store: Probed) -> dict[str, Any]:
    """What a verdict is about."""
    return {"location": redacted(store.location), "server": _server(store.filesystem)}


def _remembered(store: Probed) -> bool:
    """Whether the table says that this storage passed."""
    try:
        verdict = json.loads(store.read(VERDICT_PATH, VERDICT_BYTES_MAX))
    except (FileNotFoundError, ValueError):
        return False
    if not isinstance(verdict, dict) or verdict.get("format") != VERDICT_FORMAT:
        return False
    return verdict.items() >= _subject(store).items()


def _refuses_the_second(store: Probed, paths: Iterator[str]) -> bool:
    """Create an object twice; whether it could be deleted."""

    def create_twice(path: str) -> bool:
        contents = (b"0", b"1")
        results = [store.create(path, content) for content in contents]
        return _has_one_winner(store, path, contents, results)

    return _until_proven(store, paths, create_twice)


def _race(store: Probed, paths: Iterator[str], keys: int) -> None:
    """Let threads race for so many objects."""
    contents = [b"%d" % thread for thread in range(PROBE_THREADS)]
    with ThreadPoolExecutor(PROBE_THREADS) as executor:

        def race(path: str) -> bool:
            results = list(executor.map(store.create, [path] * len(contents), contents))
            return _has_one_winner(store, path, contents, results)

        for _ in range(keys):
            _until_proven(store, paths, race)


def _until_proven(store: Probed, paths: Iterator[str], attempt: Callable[[str], bool]) -> bool:
    """Try objects until one proves something; whether it could be deleted.

    Raises UnsafeStorage: Two writers created one object.
    Raises OSError: The storage's own; or no object proves anything.
    """
    path = ""
    for path in itertools.islice(paths, INCONCLUSIVE_MAX):
        try:
            is_proven = attempt(path)
        finally:
            deletes = _deleted(store, path)
        if is_proven:
            return deletes
    raise OSError(
        errno.EIO,
        f"create: {INCONCLUSIVE_MAX} times no writer was told that it created the object, as the "
        f"reply was lost: not known whether two writers could create one; try again",
        path,
    )


def _deleted(store: Probed, path: str) -> bool:
    try:
        store.remove(path)
    except Exception:  # noqa: BLE001 - must not hide the probe's verdict
        return False
    return True


def _has_one_winner(
    store: Probed, path: str, contents: Sequence[bytes], results: Sequence[CreateResult]
) -> bool:
    """Whether exactly one of several writers has created an object; False: that is not proven.

    A client that gets no reply may send the request again, and learn that the object is there: it
    does not know that it created it.

    Raises UnsafeStorage: Several have, or the object is not that of the one that was told so.
    """
    creators = [
        content
        for content, result in zip(contents, results, strict=True)
        if result is CreateResult.CREATED
    ]
    if not creators:
        return False
    if len(creators) > 1:
        found = f"{len(creators)} of {len(contents)} writers were told that they created the same"
    elif creators != [store.read(path)]:
        found = "one writer was told that it created a file, and another one replaced the"
    else:
        return True
    raise UnsafeStorage(
        f"{redacted(store.location)}: {found} file; commits would be lost. Keep the table on a "
        f"local disk or on an object store with conditional writes"
    )


def _server(filesystem: fsspec.AbstractFileSystem) -> str:
    """The server that a file system talks to, empty where it does not say."""
    client = getattr(getattr(filesystem, "_s3", None), "meta", None)
    found = getattr(client, "endpoint_url", None) or getattr(filesystem, "url", None)
    return redacted(found) if isinstance(found, str) else ""


def _is_documented(filesystem: fsspec.AbstractFileSystem) -> bool:
    """Whether the service is known to create an object for one writer only."""
    protocol = filesystem.protocol
    if not _KNOWN.isdisjoint((protocol,) if isinstance(protocol, str) else protocol):
        return True
    host = urlsplit(_server(filesystem)).hostname or ""
    return host.endswith(_AWS)


def refuse_look_then_write(filesystem: fsspec.AbstractFileSystem, location: str) -> None:
    """Refuse a file system that has fsspec's generic create: it looks, and then writes.

    Raises UnsafeStorage: Whatever a probe would find, two writers could both succeed.
    """
    while isinstance(filesystem, DirFileSystem):
        filesystem = filesystem.fs
    implementation = type(filesystem)
    if issubclass(implementation, AsyncFileSystem):
        # Azure's client takes the mode, too, and has a parameter of its own for it.
        known = inspect.signature(implementation._pipe_file).parameters
        own = "mode" in known or "overwrite" in known
    else:
        own = implementation.pipe_file is not fsspec.AbstractFileSystem.pipe_file
    if not own:
        raise UnsafeStorage(
            f"{redacted(location)}: {implementation.__name__} has no conditional create: it checks "
            f"whether a file exists and then writes it, so two writers could both succeed; such a "
            f"table can be read but not written"
        )
