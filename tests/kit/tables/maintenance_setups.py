"""A small table of made-up files in memory, and expiry that waits for nothing."""

from __future__ import annotations

from typing import Any

from fermion_table.commit.commit import commit, create_table
from fermion_table.commit.request import CommitRequest, FileGroup
from fermion_table.expiry.expire import expire_snapshots
from fermion_table.expiry.maintenance import MaintenanceResult
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.metadata.versions import resolve_version
from fermion_table.storage.store import AtomicStore
from tests.kit.stores import MemoryStore, made_up_entry, made_up_schema

FUTURE_MS = 10**15
MARKS = ("snapshot/EARLIEST", "expired/")


def append(store: AtomicStore, *names: str, branch: str = "main") -> Snapshot:
    entries = []
    for name in names:
        entries.append(made_up_entry(name, rows=1))
        store.write(entries[-1].path, b"." * entries[-1].size)
    return commit(store, CommitRequest(kind="append", added=entries), branch=branch)


def compact(store: AtomicStore, name: str, *inputs: str) -> Snapshot:
    entry = made_up_entry(name, rows=len(inputs))
    store.write(entry.path, b"." * entry.size)
    removed = tuple(f"data/{name}.fermion" for name in inputs)
    group = FileGroup(added=(entry,), removed=removed)
    return commit(store, CommitRequest(kind="compact", groups=[group]))


def files(store: AtomicStore, version: Any = None, branch: str = "main") -> set[str]:
    snapshot = resolve_version(store, version, branch=branch)
    return {entry.path[5:-8] for entry in live_entries(store, snapshot)}


def stored_files(store: AtomicStore) -> set[str]:
    return {item.path[5:-8] for item in store.list("data")}


def expire(store: AtomicStore, retain_last: int = 1, **fields: Any) -> MaintenanceResult:
    arguments = {
        "older_than_ms": FUTURE_MS,
        "snapshot_file_grace_ms": 0,
        "now": FUTURE_MS,
        **fields,
    }
    return expire_snapshots(store, retain_last=retain_last, **arguments)


def made_store() -> MemoryStore:
    """Snapshots 1 to 6 add a file each, 7 compacts four of them, 8 appends."""
    store = MemoryStore()
    create_table(store, made_up_schema())
    for name in "abcdef":
        append(store, name)
    compact(store, "abcd", *"abcd")
    append(store, "g")
    return store
