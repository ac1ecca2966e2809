"""Tables and small limits that the tests of commits share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fermion_table.commit import next_snapshot
from fermion_table.commit.commit import commit, create_table
from fermion_table.commit.request import CommitMetadata, CommitRequest
from fermion_table.metadata.history import latest, walk
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.options import CommitOptions
from fermion_table.storage.store import AtomicStore
from tests.kit.stores import MemoryStore, made_up_schema

FIRST_SCHEMA = made_up_schema()
QUICK = CommitOptions(backoff_s_min=0.0001, backoff_s_max=0.01)
SMALL_TAIL = 4
METADATA = ("message", "properties", "commit_user", "commit_identifier")


@pytest.fixture(autouse=True, scope="module")
def small_limits() -> Iterator[None]:
    """Tails and merges so small that a few commits reach all of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", SMALL_TAIL)
        patch.setattr(next_snapshot, "MERGE_FANOUT", 3)
        yield


def new_table() -> MemoryStore:
    store = MemoryStore()
    create_table(store, FIRST_SCHEMA)
    return store


def append(store: AtomicStore, *entries: Entry, **fields: Any) -> Snapshot:
    """Append entries; `fields` are those of the request and of its metadata."""
    about = {name: fields.pop(name) for name in METADATA if name in fields}
    metadata = CommitMetadata(**about)
    request = CommitRequest(kind="append", added=entries, metadata=metadata, **fields)
    return commit(store, request, options=QUICK)


def names(store: AtomicStore, snapshot: Snapshot | None = None) -> list[str]:
    """The live files' names, in the order in which they are read."""
    entries = live_entries(store, snapshot or latest(store))
    return [entry.path.removeprefix("data/").removesuffix(".fermion") for entry in entries]


def entries_by_name(store: AtomicStore) -> dict[str, Entry]:
    return dict(zip(names(store), live_entries(store, latest(store)), strict=True))


def write_data(store: AtomicStore, *entries: Entry) -> None:
    """Files of the right size, so that `verify` finds them."""
    for entry in entries:
        store.write(entry.path, b"." * entry.size)


def metadata_objects(store: AtomicStore) -> set[str]:
    return {item.path for item in store.list() if item.path.startswith(("manifest/", "schema/"))}


def referenced_objects(store: AtomicStore) -> set[str]:
    referenced = set()
    for snapshot in walk(store, latest(store)):
        delta = snapshot.delta
        references = (*snapshot.manifests, *delta.added, *delta.removed_manifests)
        referenced |= {snapshot.schema.path} | {reference.path for reference in references}
    return referenced
