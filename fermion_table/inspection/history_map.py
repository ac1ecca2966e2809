"""A table's history as a picture needs it: snapshots of all branches, references, and trees.

`history_map` reads the snapshots, and the entries of one of them. What it makes goes into a page
as JSON: lists of numbers, one a snapshot in the order of time, and tables of the texts that they
refer to. -1 stands for none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from fermion.display import shortened
from fermion.engine import value_text, web_page
from fermion.exports import dataclass
from fermion.redaction import redacted
from fermion_table.commit.branch_merge import MERGED_PROPERTY
from fermion_table.inspection.entry_columns import partition_column
from fermion_table.inspection.history_log import commit_changes
from fermion_table.inspection.refs import Branches
from fermion_table.metadata.history import SchemaVersions, latest, parent_of, walk
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.references import (
    HEAD_PROPERTY,
    list_tags,
    snapshot_of,
)
from fermion_table.metadata.snapshot import Deltas, Snapshot, SnapshotReference, Totals
from fermion_table.schema.schema import has_buckets
from fermion_table.storage.store import AtomicStore

SNAPSHOTS_MAX = 20_000
"""Snapshots of each branch that are shown, the newest."""
TREES_MAX = 2_000
"""Trees of a primary-key table that are shown, the largest."""
TEXT_LENGTH = 200
NONE = -1
_HERE = Path(__file__).parent
SCRIPTS = (_HERE / "history.js", _HERE / "history_panels.js")


@dataclass(frozen=True, slots=True)
class _Found:
    """Snapshots in the order of time, what they were made on, and their places by hash."""

    snapshots: list[Snapshot]
    parents: list[SnapshotReference | None]
    places: dict[str, int]

    def place(self, hash_: str | None) -> int:
        return self.places.get(hash_ or "", NONE)


def history_page(
    store: AtomicStore, snapshot: Snapshot, branch: str, *, limit: int | None = None
) -> str:
    """A web page with the history of a table; arguments and errors as of `history_map`."""
    found = history_map(store, snapshot, branch, limit=limit)
    return web_page(f"{found['table']['location']} - Fermion table", found, SCRIPTS)


def history_map(
    store: AtomicStore, snapshot: Snapshot, branch: str, *, limit: int | None = None
) -> dict[str, Any]:
    """The history of all branches, and what the trees of one snapshot look like.

    snapshot, branch: Whose trees are shown; it is marked in the history.
    limit: At most so many snapshots of each branch, the newest.
    Returns: ``table``: facts. ``snapshots``: lists, one item a snapshot. ``branches``, ``tags``:
        lists. ``texts``: what branches, kinds, authors and messages of snapshots are places in.
        ``trees``: of a primary-key table; None of others.
    """
    schemas = SchemaVersions(store, snapshot)
    heads = Branches(store, snapshot, branch).list()
    tags = list_tags(store)
    most = SNAPSHOTS_MAX if limit is None else min(limit, SNAPSHOTS_MAX)
    walked = [
        itertools.islice(walk(store, latest(store, branch=head.name), branch=head.name), most)
        for head in heads
    ]
    tagged = [snapshot_of(tag, tag.name) for tag in tags]
    found = _in_order(store, [*walked, [snapshot], tagged])
    texts: dict[str, int] = {}
    return {
        "table": {
            "location": shortened(redacted(store.location), TEXT_LENGTH * 2),
            "branch": branch,
            "columns": len(schemas.current.fields),
            "primary_key": has_buckets(schemas.current),
            "shown": found.place(snapshot.hash),
            "is_cut": any(
                each is not None and found.place(each.hash) == NONE for each in found.parents
            ),
        },
        "snapshots": _snapshots(store, found, texts),
        "branches": [
            {
                "name": head.name,
                "head": found.place(latest(store, branch=head.name).hash),
                "parent": head.parent,
                "left_after": head.left_after,
                "message": _text(head.message),
            }
            for head in heads
        ],
        "tags": [
            {
                "name": tag.name,
                "snapshot": found.place(named.hash),
                "message": _text(tag.message),
            }
            for tag, named in zip(tags, tagged, strict=True)
        ],
        "texts": list(texts),
        "trees": _trees(store, snapshot, schemas) if has_buckets(schemas.current) else None,
    }


def _in_order(store: AtomicStore, walked: Iterable[Iterable[Snapshot]]) -> _Found:
    """Each snapshot once, by time; a branch is followed to where it left one that is known."""
    known: dict[str, Snapshot] = {}
    for each in walked:
        for snapshot in each:
            if snapshot.hash in known:
                break
            known[snapshot.hash] = snapshot
    ordered = sorted(known.values(), key=lambda each: (each.time_ms, each.id))
    parents = [parent_of(store, each) for each in ordered]
    return _Found(ordered, parents, {each.hash: place for place, each in enumerate(ordered)})


def _snapshots(store: AtomicStore, found: _Found, texts: dict[str, int]) -> dict[str, list[Any]]:
    def place(text: str | None) -> int:
        return texts.setdefault(_text(text), len(texts))

    columns: dict[str, list[Any]] = {
        "id": [each.id for each in found.snapshots],
        "time_ms": [each.time_ms for each in found.snapshots],
        "schema": [each.schema.id for each in found.snapshots],
        "parent": [NONE if each is None else found.place(each.hash) for each in found.parents],
        "brought": [
            found.place(each.properties.get(MERGED_PROPERTY) or each.properties.get(HEAD_PROPERTY))
            for each in found.snapshots
        ],
    }
    for name in ("branch", "kind", "author", "message"):
        columns[name] = [place(getattr(each, name)) for each in found.snapshots]
    parents = [found.snapshots[each] if each >= 0 else None for each in columns["parent"]]
    changes = map(partial(commit_changes, store), found.snapshots, parents)
    columns["changes"] = [place("; ".join(each)) for each in changes]
    for name in Totals.__struct_fields__:
        columns[f"total_{name}"] = [getattr(each.totals, name) for each in found.snapshots]
    for name in Deltas.__struct_fields__:
        columns[name] = [getattr(each.deltas, name) for each in found.snapshots]
    return columns


def _trees(store: AtomicStore, snapshot: Snapshot, schemas: SchemaVersions) -> dict[str, Any]:
    """Partitions, buckets, levels and runs: those of level 0 one by one, the newest first."""
    trees: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in live_entries(store, snapshot):
        trees.setdefault((entry.partition, entry.bucket or 0), []).append(entry)
    largest = sorted(trees, key=lambda tree: -sum(each.bytes for each in trees[tree]))[:TREES_MAX]
    shown = sorted(largest, key=lambda tree: (str(tree[0]), tree[1]))
    partitions = {
        values: place for place, values in enumerate(dict.fromkeys(key[0] for key in shown))
    }
    runs: dict[str, list[int]] = {
        name: [] for name in ("tree", "level", "files", "rows", "deleted", "bytes")
    }
    for place, tree in enumerate(shown):
        for (level, _), entries in _runs(trees[tree]):
            totals = Totals.of(entries)
            values = (place, level, totals.files, totals.rows, totals.rows_deleted, totals.bytes)
            for column, value in zip(runs.values(), values, strict=True):
                column.append(value)
    return {
        "partitions": _partition_texts(list(partitions), schemas),
        "partition": [partitions[values] for values, _ in shown],
        "bucket": [bucket for _, bucket in shown],
        "runs": runs,
        "left_out": len(trees) - len(shown),
    }


def _runs(entries: Sequence[Entry]) -> list[tuple[tuple[int, int], list[Entry]]]:
    """Files by sorted run, as `TreeFile.run` has them, without their keys."""
    runs: dict[tuple[int, int], list[Entry]] = {}
    for entry in entries:
        order = -entry.sequence_number if entry.level == 0 else 0
        runs.setdefault((entry.level, order), []).append(entry)
    return sorted(runs.items())


def _partition_texts(partitions: Sequence[tuple[Any, ...]], schemas: SchemaVersions) -> list[str]:
    """Each as ``name=value, ...``; of a table without partitions the empty text."""
    columns = partition_column("partition", partitions, schemas.current)
    if not columns:
        return ["" for _ in partitions]
    structs: pa.StructArray = columns["partition"]
    names = [field.name for field in structs.type]
    values = [[value_text(each) for each in structs.field(place)] for place in range(len(names))]
    return [
        _text(", ".join(f"{name}={value}" for name, value in zip(names, row, strict=True)))
        for row in zip(*values, strict=True)
    ]


def _text(text: str | None) -> str:
    return shortened(text or "", TEXT_LENGTH)
