"""The snapshot that follows another by one commit: entries placed, manifests merged, sums made.

`plan_inline` and `plan_merges` decide, as pure functions, when entries move to a manifest, when
manifests are merged, and when dead entries go.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from fermion.exports import dataclass
from fermion_table.commit.request import CommitRequest
from fermion_table.errors import CommitConflict
from fermion_table.metadata.manifest import (
    AT_ZERO,
    NO_BOUNDS,
    Entry,
    ManifestReference,
    PartitionRange,
    reference_to,
)
from fermion_table.metadata.manifest_store import (
    Located,
    MetadataWriter,
    listed_manifests,
    live_ordinals,
    manifest_entries,
    manifest_files,
    read_list,
)
from fermion_table.metadata.packed_manifest import (
    PackedFiles,
    can_pack,
    packed_table,
    with_inherited,
)
from fermion_table.metadata.snapshot import (
    BLOB_FILES,
    CHANGELOG,
    MANIFEST_LISTS,
    SNAPSHOT_FORMAT,
    SNAPSHOT_FORMAT_VERSION,
    TRANSACTIONS,
    Changelog,
    Delta,
    Deltas,
    PartOfTransaction,
    Producer,
    Snapshot,
    SnapshotReference,
    Totals,
    Touched,
)
from fermion_table.moments import now_ms
from fermion_table.options import (
    CARRIED_BYTES_MAX,
    CARRIED_ENTRIES_MAX,
    INLINE_BYTES_MAX,
    INLINE_ENTRIES_MAX,
    LISTED_MANIFESTS_MAX,
    LISTED_MANIFESTS_MIN,
    MERGE_FANOUT,
    MERGE_INPUT_ENTRIES_MAX,
    PACK_ENTRIES_MIN,
    REWRITE_DEAD_FRACTION,
    TOUCHED_PARTITIONS_MAX,
)
from fermion_table.schema.schema import SchemaReference
from fermion_table.storage import json_codec
from fermion_table.storage.store import AtomicStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What one commit changes in its parent.

    added: Entries as the writer made them, `row_offset` set by `number_rows`.
    located: The files removed, found in the parent.
    schema: The new schema, None to keep the parent's.
    producer, changelog: What recorded changes of rows, and the changelog files; None: no changelog.
    """

    added: tuple[Entry, ...]
    located: Located
    schema: SchemaReference | None = None
    producer: Producer | None = None
    changelog: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a transaction over several tables gives the snapshot of each.

    part: The transaction.
    time_ms: The time of all its snapshots.
    """

    part: PartOfTransaction
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the next snapshot goes.

    uuid, branch: The identity of the commit, and its branch.
    follows: What the last snapshot file holds: the base, or a snapshot of a transaction that was
        given up.
    prepared: The transaction that it is part of; None: it counts by itself.
    """

    uuid: str
    branch: str
    follows: SnapshotReference
    prepared: Prepared | None = None


class LaterThanTransaction(CommitConflict):
    """A table got a commit that is not older than the transaction, which needs a later time.

    time_ms: Of that commit.
    """

    time_ms = 0


def number_rows(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Entries of one commit with the rows before each counted, where row ids are inherited."""
    numbered = []
    rows = 0
    for entry in entries:
        if entry.row_id_base is not None:
            numbered.append(entry)
            continue
        numbered.append(msgspec.structs.replace(entry, row_offset=rows))
        rows += entry.rows
    return tuple(numbered)


def next_snapshot(
    store: AtomicStore,
    base: Snapshot,
    request: CommitRequest,
    changes: Changes,
    *,
    place: Place,
    writer: MetadataWriter,
) -> Snapshot:
    """The child of `base`. Writes manifests for inline entries that are too many, or to merge them.

    store, writer: Where manifests are read and written.
    place: Where it goes, and as what.

    Raises LaterThanTransaction: The base is not older than the transaction.
    """
    follows, prepared, metadata = place.follows, place.prepared, request.metadata
    snapshot_id, written = follows.id + 1, (*changes.added, *changes.changelog)
    if prepared is not None and base.time_ms >= prepared.time_ms:
        error = LaterThanTransaction(f"{store.location}: snapshot {base.id} came first")
        error.time_ms = base.time_ms
        raise error
    added = _inheriting(changes.added, base, snapshot_id)
    removed = changes.located.entries
    placement = _place(store, base, changes, added, writer)
    deltas = sum_deltas(added, removed)
    return Snapshot(
        format=SNAPSHOT_FORMAT,
        format_version=SNAPSHOT_FORMAT_VERSION,
        table_uuid=base.table_uuid,
        id=snapshot_id,
        uuid=place.uuid,
        branch=place.branch,
        parent=follows,
        parent_void=follows != base.reference,
        transaction=None if prepared is None else prepared.part,
        kind=request.kind,
        time_ms=max(now_ms(), base.time_ms + 1) if prepared is None else prepared.time_ms,
        author=user_of_process(),
        message=metadata.message,
        properties=dict(metadata.properties or {}),
        schema=changes.schema or base.schema,
        manifests=placement.manifests,
        tail=placement.inline,
        delta=placement.delta,
        totals=_totals(base.totals, deltas, added, removed),
        deltas=deltas,
        changelog=_changelog(writer, base, changes, snapshot_id),
        row_id_next=base.row_id_next
        + sum(entry.rows for entry in changes.added if entry.row_id_base is None),
        sequence_next=base.sequence_next + _sequence_numbers(changes.added),
        commit_user=metadata.commit_user,
        commit_identifier=metadata.commit_identifier,
        branch_commits=dict(request.branch_commits),
        touched=touched_by((*added, *removed)),
        reader_features=_union(
            base.reader_features,
            (
                *request.reader_features,
                *([BLOB_FILES] if any(each.blob_files for each in written) else []),
                *([TRANSACTIONS] if prepared or follows != base.reference else []),
                *([MANIFEST_LISTS] * any(each.kind == "list" for each in placement.manifests)),
            ),
        ),
        writer_features=_union(
            base.writer_features,
            (*request.writer_features, *([] if changes.producer is None else [CHANGELOG])),
        ),
    )


def _changelog(
    writer: MetadataWriter, base: Snapshot, changes: Changes, snapshot_id: int
) -> Changelog | None:
    """The changelog of a commit: entries inline, or in a manifest when there are many."""
    if changes.producer is None:
        return None
    entries = _inheriting(changes.changelog, base, snapshot_id)
    if fits_inline(entries):
        return Changelog(producer=changes.producer, entries=entries)
    stored = _stored_unnumbered(writer, changes.changelog, entries, base)
    return Changelog(producer=changes.producer, manifests=(stored,))


def _inheriting(entries: Iterable[Entry], base: Snapshot, snapshot_id: int) -> tuple[Entry, ...]:
    """Entries of the commit that follows a snapshot, with what they inherit from it."""
    return tuple(
        entry.inherit(
            snapshot_id=snapshot_id,
            sequence_start=base.sequence_next,
            row_id_start=base.row_id_next,
        )
        for entry in entries
    )


def user_of_process() -> str:
    """Who commits; empty where the user has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user often has no name
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placement:
    manifests: tuple[ManifestReference, ...]
    inline: tuple[Entry, ...]
    delta: Delta


def _place(
    store: AtomicStore,
    base: Snapshot,
    changes: Changes,
    added: tuple[Entry, ...],
    writer: MetadataWriter,
) -> _Placement:
    manifests = _without(store, listed_manifests(store, base.manifests), changes.located)
    inline = tuple(entry for entry in base.tail if entry.file not in changes.located.inline)
    is_long = bool(manifests) or base.id >= INLINE_ENTRIES_MAX
    plan = plan_inline(inline, added, is_long=is_long)
    flushed: tuple[Entry, ...] = ()
    if plan.flush:
        manifests.append(reference_to(inline, path="", hash="", size=0))  # stored once merged
        flushed, inline = inline, ()
    delta_added: tuple[ManifestReference, ...] = ()
    if plan.inline:
        inline += added
    else:
        delta_added = (_stored_unnumbered(writer, changes.added, added, base),)
        manifests += delta_added
    removed, removed_manifests = place_removed(writer, changes.located.entries)
    delta = Delta(
        tail_entries=len(added) if plan.inline else 0,
        added=delta_added,
        removed=removed,
        removed_manifests=removed_manifests,
        sequence_start=base.sequence_next,
        row_id_start=base.row_id_next,
    )
    manifests = _merged(store, manifests, writer, flushed)
    kept = _in_lists(store, base.manifests, manifests, writer)
    return _Placement(manifests=kept, inline=inline, delta=delta)


def _without(
    store: AtomicStore, references: Sequence[ManifestReference], located: Located
) -> list[ManifestReference]:
    """Manifests with the located ordinals dead; those with nothing alive are left out."""
    kept = []
    for position, reference in enumerate(references):
        ordinals = located.ordinals.get(position)
        if ordinals is None:
            kept.append(reference)
            continue
        files = manifest_files(store, reference)
        rows, sizes = (files.numbers(name).values[ordinals] for name in ("rows", "size"))
        marked = msgspec.structs.replace(
            reference,
            dead=tuple(sorted((*reference.dead, *ordinals))),
            rows=reference.rows - int(rows.sum()),
            bytes=reference.bytes - int(sizes.sum()),
        )
        if marked.live_entries:
            kept.append(marked)
    return kept


def _merged(
    store: AtomicStore,
    references: Sequence[ManifestReference],
    writer: MetadataWriter,
    flushed: Sequence[Entry],
) -> list[ManifestReference]:
    """The manifests after merges. `flushed` are the entries of the one without a path, if any."""
    groups = {group[0]: group for group in plan_merges(references)}
    taken = {position for group in groups.values() for position in group}
    result = []
    for position, reference in enumerate(references):
        if position in groups:
            group = [references[member] for member in groups[position]]
            result.append(rewrite_manifests(store, group, writer, flushed))
        elif position not in taken:
            result.append(reference if reference.path else store_entries(writer, flushed))
    return result


def _in_lists(
    store: AtomicStore,
    before: Sequence[ManifestReference],
    manifests: Sequence[ManifestReference],
    writer: MetadataWriter,
) -> tuple[ManifestReference, ...]:
    """Manifests as a snapshot holds them: many that stay as they are in lists.

    before: As the parent holds them. A list stays while most of its manifests do.
    """
    left = {each.path: each for each in manifests}
    lists = []
    for old in (each for each in before if each.kind == "list"):
        listed = read_list(store, old)
        alive = [each for each in listed if left.get(each.path) == each]
        dead = tuple(at for at, each in enumerate(listed) if left.get(each.path) != each)
        if len(dead) > REWRITE_DEAD_FRACTION * len(listed):
            continue
        rows, size = sum(each.rows for each in alive), sum(each.bytes for each in alive)
        lists.append(msgspec.structs.replace(old, dead=dead, rows=rows, bytes=size))
        for each in alive:
            del left[each.path]
    big = [each for each in left.values() if each.live_entries > MERGE_INPUT_ENTRIES_MAX]
    if len(big) >= LISTED_MANIFESTS_MIN:
        if lists and lists[-1].live_entries < LISTED_MANIFESTS_MAX:
            big = [*listed_manifests(store, [lists.pop()]), *big]
        for start in range(0, len(big), LISTED_MANIFESTS_MAX):
            group = big[start : start + LISTED_MANIFESTS_MAX]
            stored = writer.write_list(group)
            made = merged_reference(group, stored.path, stored.hash, stored.size)
            lists.append(msgspec.structs.replace(made, kind="list", entries=len(group), unknown={}))
        for each in big:
            left.pop(each.path, None)
    return (*lists, *left.values())


def _stored_unnumbered(
    writer: MetadataWriter, written: Sequence[Entry], added: Sequence[Entry], base: Snapshot
) -> ManifestReference:
    """Entries as the writer made them: the same object serves every try of the commit."""
    stored = writer.write_manifest(written)
    return reference_to(
        added,
        path=stored.path,
        hash=stored.hash,
        size=stored.size,
        kind=stored.kind,
        sequence_start=base.sequence_next,
        row_id_start=base.row_id_next,
    )


def place_removed(
    writer: MetadataWriter, removed: Sequence[Entry]
) -> tuple[tuple[Entry, ...], tuple[ManifestReference, ...]]:
    """Removed entries as a delta holds them: inline, or in a manifest when there are many."""
    slim = tuple(entry.without_statistics() for entry in removed)
    if fits_inline(slim):
        return slim, ()
    return (), (store_entries(writer, slim),)


def _sequence_numbers(added: Sequence[Entry]) -> int:
    inheriting = [entry.sequence_offset for entry in added if entry.sequence_start is None]
    return max(inheriting) + 1 if inheriting else 0


def sum_deltas(added: Sequence[Entry], removed: Sequence[Entry]) -> Deltas:
    """What a commit changed, in numbers; a file in both has other rows deleted, or other columns.

    Of such a file only its column files count as bytes.
    """
    before = {entry.file: entry for entry in removed}
    kept = [entry for entry in added if entry.file in before]
    files = {entry.file for entry in kept}
    new = [entry for entry in added if entry.file not in files]
    gone = [entry for entry in removed if entry.file not in files]
    after, past = (
        {each.file: each.size for entry in entries for each in entry.column_files}
        for entries in (kept, [before[entry.file] for entry in kept])
    )
    return Deltas(
        files_added=len(new),
        rows_added=sum(entry.rows for entry in new),
        bytes_added=sum(entry.bytes for entry in new)
        + sum(size for file, size in after.items() if file not in past),
        files_removed=len(gone),
        rows_removed=sum(entry.rows for entry in gone),
        bytes_removed=sum(entry.bytes for entry in gone)
        + sum(size for file, size in past.items() if file not in after),
        rows_deleted=sum(entry.delete_rows - before[entry.file].delete_rows for entry in kept),
    )


def _totals(
    base: Totals, deltas: Deltas, added: Sequence[Entry], removed: Sequence[Entry]
) -> Totals:
    return Totals(
        files=base.files + deltas.files_added - deltas.files_removed,
        rows=base.rows + deltas.rows_added - deltas.rows_removed,
        bytes=base.bytes + deltas.bytes_added - deltas.bytes_removed,
        rows_deleted=base.rows_deleted
        + sum(entry.delete_rows for entry in added)
        - sum(entry.delete_rows for entry in removed),
    )


def touched_by(entries: Sequence[Entry]) -> Touched:
    """The partitions of entries, or "many"."""
    partitions = tuple(dict.fromkeys(entry.partition for entry in entries))
    return Touched("many" if len(partitions) > TOUCHED_PARTITIONS_MAX else partitions)


def _union(base: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*base, *more}))


@dataclass(frozen=True, slots=True)
class InlinePlan:
    """What happens to a snapshot's inline entries, those that it holds itself.

    flush: The entries of earlier commits go into a manifest of their own.
    inline: The entries of this commit go into the snapshot (else into a manifest of their own).
    """

    flush: bool
    inline: bool


def plan_inline(current: Sequence[Entry], added: Sequence[Entry], *, is_long: bool) -> InlinePlan:
    """Decide where the inline entries of a snapshot and the entries of a commit go.

    A table that fits into one snapshot is read with one request; each commit to a longer one
    repeats few entries.

    current: Entries of earlier commits that are still live.
    is_long: Whether the table has manifests, or as many commits as would make some: files that
        are compacted all the time are few, but every commit would repeat them.
    """
    inline, both = fits_inline(added), (*current, *added)
    carried = _fit(both, _carried_max(), CARRIED_BYTES_MAX) if is_long else fits_inline(both)
    return InlinePlan(flush=inline and bool(current) and not carried, inline=inline)


def fits_inline(entries: Sequence[Entry]) -> bool:
    """Whether the entries of a commit fit into its snapshot: at most 64 of them and 64 KB."""
    return _fit(entries, INLINE_ENTRIES_MAX, INLINE_BYTES_MAX)


def _carried_max() -> int:
    return min(CARRIED_ENTRIES_MAX, INLINE_ENTRIES_MAX)


def _fit(entries: Sequence[Entry], entries_max: int, bytes_max: int) -> bool:
    if len(entries) > entries_max:
        return False
    return sum(len(json_codec.encode(entry)) + 1 for entry in entries) <= bytes_max


def plan_merges(references: Sequence[ManifestReference]) -> list[tuple[int, ...]]:
    """Decide which manifests are rewritten into one, geometrically.

    Manifests are of one class when their live entries lie between the same powers of
    `MERGE_FANOUT`. As many of one class become one of (mostly) the next, so that an entry is
    rewritten O(log n) times in its life. A manifest with too many dead entries is rewritten
    alone, if not with others.

    references: A snapshot's manifests, none of them without live entries.
    Returns: Disjoint groups of positions in `references`, ascending.
    """
    classes: dict[int, list[int]] = {}
    for position, reference in enumerate(references):
        if reference.live_entries <= MERGE_INPUT_ENTRIES_MAX:
            classes.setdefault(_size_class(reference), []).append(position)
    merged = [tuple(group) for group in classes.values() if len(group) >= MERGE_FANOUT]
    placed = {position for group in merged for position in group}
    alone: list[tuple[int, ...]] = [
        (position,)
        for position, reference in enumerate(references)
        if position not in placed and needs_rewrite(reference)
    ]
    return sorted(merged + alone)


def needs_rewrite(reference: ManifestReference) -> bool:
    """Whether more than 30 % of a manifest's entries are dead."""
    return len(reference.dead) > REWRITE_DEAD_FRACTION * reference.entries


def _size_class(reference: ManifestReference) -> int:
    size_class, bound = 0, max(_carried_max() * MERGE_FANOUT // 2, 1)
    while reference.live_entries > bound:
        size_class += 1
        bound *= MERGE_FANOUT
    return size_class


def rewrite_manifests(
    store: AtomicStore,
    references: Sequence[ManifestReference],
    writer: MetadataWriter,
    flushed: Sequence[Entry] = (),
) -> ManifestReference:
    """The live entries of manifests in one manifest, in their order; many of them are packed.

    Columns and keys that this version does not know are kept.

    flushed: The entries of a reference without a path, which is not stored yet.
    """
    is_packed = any(each.kind == "packed" for each in references)
    if is_packed or sum(each.live_entries for each in references) >= PACK_ENTRIES_MIN:
        tables = [_table(store, each, flushed) for each in references]
        known = [table for table in tables if table is not None]
        if len(known) == len(tables):
            merged = pa.concat_tables(known, promote_options="default")
            stored = writer.write_packed(merged)
            return merged_reference(references, stored.path, stored.hash, stored.size)
    entries = [entry for each in references for entry in _entries(store, each, flushed)]
    return store_entries(writer, entries)


def store_entries(writer: MetadataWriter, entries: Sequence[Entry]) -> ManifestReference:
    """Entries that inherit nothing any more, in a manifest of their own."""
    stored = writer.write_manifest(entries)
    return reference_to(
        entries, path=stored.path, hash=stored.hash, size=stored.size, kind=stored.kind
    )


def merged_reference(
    references: Sequence[ManifestReference], path: str, hash: str, size: int
) -> ManifestReference:
    """The reference to a packed manifest of what is live in others; bounds are not narrowed."""
    batches = [each.batch_id for each in references if each.batch_id is not None]
    unknown = {key: value for each in references for key, value in each.unknown.items()}
    return msgspec.structs.replace(
        references[0],
        path=path,
        hash=hash,
        size=size,
        kind="packed",
        entries=sum(each.live_entries for each in references),
        dead=(),
        rows=sum(each.rows for each in references),
        bytes=sum(each.bytes for each in references),
        added_snapshot=_span([each.added_snapshot for each in references]),
        sequence=_span([each.sequence for each in references]),
        level=_span([each.level for each in references]),
        batch_id=_span(batches) if batches else None,
        partition=_partitions([each.partition for each in references]),
        sequence_start=0,
        row_id_start=0,
        unknown=unknown,
    )


def _entries(
    store: AtomicStore, reference: ManifestReference, flushed: Sequence[Entry]
) -> Sequence[Entry]:
    if not reference.path:
        return flushed
    return manifest_entries(store, reference, keep_unknown=True)


def _table(
    store: AtomicStore, reference: ManifestReference, flushed: Sequence[Entry]
) -> pa.Table | None:
    """The live entries as columns; None if they do not fit into columns."""
    if reference.path and isinstance(files := manifest_files(store, reference), PackedFiles):
        return with_inherited(files.table(live_ordinals(reference)), reference)
    entries = _entries(store, reference, flushed)
    return packed_table(entries) if can_pack(entries) else None


def _span(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    span = min(low for low, _ in ranges), max(high for _, high in ranges)
    return span if any(span) else AT_ZERO


def _partitions(ranges: Sequence[PartitionRange]) -> PartitionRange:
    """Bounds of all; a field without bounds in one of them has none."""
    if any(len(each.nulls) != len(ranges[0].nulls) for each in ranges):
        return NO_BOUNDS
    return PartitionRange(
        min=tuple(_bound(min, values) for values in zip(*(r.min for r in ranges), strict=True)),
        max=tuple(_bound(max, values) for values in zip(*(r.max for r in ranges), strict=True)),
        nulls=tuple(any(flags) for flags in zip(*(each.nulls for each in ranges), strict=True)),
    )


def _bound(choose: Callable[[Sequence[Any]], Any], values: Sequence[Any]) -> Any:
    try:
        return None if None in values else choose(values)
    except TypeError:  # values that do not compare
        return None
