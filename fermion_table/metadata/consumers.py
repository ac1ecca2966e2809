"""Consumers: positions of programs that follow a table, which keep later snapshots from expiring.

A position is a file that is never changed: its name has the snapshot and the time. A newer one
takes its place, and only then the older ones are deleted. So the first snapshot of all files is
kept wherever a program stops.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from functools import partial

import msgspec

from fermion.display import brief
from fermion.errors import InvalidArgumentError
from fermion_table.errors import CorruptMetadata, UnsupportedFeature, VersionNotFound
from fermion_table.metadata.references import is_kept
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.moments import now_ms
from fermion_table.storage import json_codec
from fermion_table.storage.json_codec import encode_checked, read_decoded
from fermion_table.storage.paths import (
    CONSUMER_DIRECTORY,
    MAIN,
    consumer_directory,
    consumer_path,
    is_temporary,
)
from fermion_table.storage.store import AtomicStore, CreateResult, unknown_reason

FORMAT_VERSION = 1
CONSUMER_FORMAT = "fermion-consumer"
REFRESH_MS = 60_000
"""How old a position is before the same one is recorded again, to show that it is still wanted."""


class Consumer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program that follows a table, and how far it has come.

    Attributes
    ----------
    name
        Of the consumer.
    snapshot_id, branch
        The snapshot up to which it has read changes; it needs this one and later ones.
    updated_ms
        When it said so, in milliseconds since 1970 UTC.
    """

    format: str
    format_version: int
    name: str
    snapshot_id: int
    branch: str = MAIN
    updated_ms: int

    def __repr__(self) -> str:
        return f"<Consumer {brief(self.name)} at snapshot {self.snapshot_id}>"

    @property
    def path(self) -> str:
        """Its file."""
        return consumer_path(self.name, self.snapshot_id, self.updated_ms)


def list_consumers(store: AtomicStore) -> list[Consumer]:
    """The last position of every consumer, by name.

    Raises CorruptMetadata, UnsupportedFeature: A file is no position of a consumer.
    """
    last = {consumer.name: consumer for consumer in sorted(positions(store), key=_time)}
    return [last[name] for name in sorted(last)]


def is_over(consumer: Consumer, since_ms: int | None) -> bool:
    """Whether a consumer has said nothing since a time."""
    return since_ms is not None and consumer.updated_ms < since_ms


def record(store: AtomicStore, name: str, snapshot: Snapshot) -> Consumer:
    """Let a consumer be at a snapshot, wherever it was before.

    Raises InvalidArgumentError: A bad name.
    Raises OSError: The storage failed; the consumer is where it was, or at the snapshot.
    Raises VersionNotFound: The snapshot has expired.
    """
    directory = consumer_directory(name)
    before = sorted(positions(store, directory), key=_time)
    now = max([now_ms(), *(each.updated_ms + 1 for each in before)])
    consumer = Consumer(
        format=CONSUMER_FORMAT,
        format_version=FORMAT_VERSION,
        name=str(name),
        snapshot_id=snapshot.id,
        branch=snapshot.branch,
        updated_ms=now,
    )
    last = before[-1] if before else None
    if last is not None and now - last.updated_ms < REFRESH_MS and _place(last) == _place(consumer):
        consumer = last
    else:
        path = consumer.path
        data, _ = encode_checked(lambda: msgspec.json.encode(consumer), path, _decoded)
        if store.create_if_absent(path, data) is not CreateResult.CREATED:
            raise OSError(
                errno.EIO, f"not known whether it was created: {unknown_reason(store)}", path
            )
        if not is_kept(store, snapshot):
            store.delete(path)
            raise VersionNotFound(
                f"{store.location}: consumer {name!r}: snapshot {snapshot.id} has expired"
            )
    for each in before:
        if each.path != consumer.path:
            store.delete(each.path)
    return consumer


def delete(store: AtomicStore, name: str) -> None:
    """Forget a consumer.

    Raises InvalidArgumentError: There is no such consumer.
    """
    found = list(positions(store, consumer_directory(name)))
    if not found:
        known = ", ".join(repr(each.name) for each in list_consumers(store)) or "none"
        raise InvalidArgumentError(f"{store.location}: no consumer {name!r}; there are: {known}")
    for each in sorted(found, key=_time):
        store.delete(each.path)


def positions(store: AtomicStore, directory: str = CONSUMER_DIRECTORY) -> Iterator[Consumer]:
    """All positions that are stored, also older ones of a consumer.

    Raises CorruptMetadata, UnsupportedFeature: A file is no position of a consumer.
    """
    for item in list(store.list(directory)):
        if item.path.endswith(".json") and not is_temporary(item.path):
            try:
                yield read_decoded(store, item.path, partial(_decoded, path=item.path))
            except FileNotFoundError:  # a newer one has taken its place
                continue


def _decoded(data: bytes, path: str) -> Consumer:
    consumer = json_codec.decode(data, Consumer, path)
    if consumer.format != CONSUMER_FORMAT:
        raise CorruptMetadata(path, f"format {CONSUMER_FORMAT!r}", repr(consumer.format))
    if consumer.format_version > FORMAT_VERSION:
        raise UnsupportedFeature(
            f"{path}: format version {consumer.format_version}; this reader knows up to "
            f"{FORMAT_VERSION}"
        )
    if consumer.path != path:
        raise CorruptMetadata(path, "the position that its name has", consumer.path)
    return consumer


def _time(consumer: Consumer) -> int:
    return consumer.updated_ms


def _place(consumer: Consumer) -> tuple[str, int]:
    return consumer.branch, consumer.snapshot_id
