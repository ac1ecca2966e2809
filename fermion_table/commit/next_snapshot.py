"""The snapshot that follows another by one commit: entries placed, manifests moved, sums made."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from fermion_table.commit import manifest_plan
from fermion_table.commit.manifest_rewrite import rewrite_manifests, store_entries
from fermion_table.commit.request import CommitRequest
from fermion_table.metadata.manifest import Entry, ManifestReference, reference_to
from fermion_table.metadata.manifest_store import Located, MetadataWriter, manifest_files
from fermion_table.metadata.snapshot import (
    CHANGELOG,
    SNAPSHOT_FORMAT,
    SNAPSHOT_FORMAT_VERSION,
    Changelog,
    Delta,
    Deltas,
    Producer,
    SchemaReference,
    Snapshot,
    Totals,
    Touched,
)
from fermion_table.moments import now_ms
from fermion_table.options import TOUCHED_PARTITIONS_MAX
from fermion_table.storage.store import AtomicStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What one commit changes in its parent.

    Attributes
    ----------
    added
        Entries as the writer made them, `row_offset` set by `number_rows`.
    located
        The files removed, found in the parent.
    schema
        The new schema, None to keep the parent's.
    producer, changelog
        What recorded changes of rows, and the changelog files; None: no changelog.
    """

    added: tuple[Entry, ...]
    located: Located
    schema: SchemaReference | None = None
    producer: Producer | None = None
    changelog: tuple[Entry, ...] = ()


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
    uuid: str,
    branch: str,
    writer: MetadataWriter,
) -> Snapshot:
    """The child of `base`. Writes manifests for inline entries that are too many, or to merge them.

    Parameters
    ----------
    store, writer
        Where manifests are read and written.
    base
        The parent.
    request, changes
        What is committed.
    uuid, branch
        The commit's identity and the branch it goes to.
    """
    snapshot_id, metadata = base.id + 1, request.metadata
    added = tuple(
        entry.inherit(
            snapshot_id=snapshot_id,
            sequence_start=base.sequence_next,
            row_id_start=base.row_id_next,
        )
        for entry in changes.added
    )
    removed = changes.located.entries
    placement = _place(store, base, changes, added, writer)
    deltas = sum_deltas(added, removed)
    return Snapshot(
        format=SNAPSHOT_FORMAT,
        format_version=SNAPSHOT_FORMAT_VERSION,
        table_uuid=base.table_uuid,
        id=snapshot_id,
        uuid=uuid,
        branch=branch,
        parent=base.reference,
        kind=request.kind,
        time_ms=max(now_ms(), base.time_ms + 1),
        author=user_of_process(),
        message=metadata.message,
        properties=dict(metadata.properties or {}),
        schema=changes.schema or base.schema,
        manifests=placement.manifests,
        tail=placement.inline,
        delta=placement.delta,
        totals=_totals(base.totals, deltas, added, removed),
        deltas=deltas,
        changelog=_changelog(writer, base, changes),
        row_id_next=base.row_id_next
        + sum(entry.rows for entry in changes.added if entry.row_id_base is None),
        sequence_next=base.sequence_next + _sequence_numbers(changes.added),
        commit_user=metadata.commit_user,
        commit_identifier=metadata.commit_identifier,
        branch_commits=dict(request.branch_commits),
        touched=touched_by((*added, *removed)),
        reader_features=_union(base.reader_features, request.reader_features),
        writer_features=_union(
            base.writer_features,
            (*request.writer_features, *([] if changes.producer is None else [CHANGELOG])),
        ),
    )


def _changelog(writer: MetadataWriter, base: Snapshot, changes: Changes) -> Changelog | None:
    """The changelog of a commit: entries inline, or in a manifest when there are many."""
    if changes.producer is None:
        return None
    entries = tuple(
        entry.inherit(
            snapshot_id=base.id + 1,
            sequence_start=base.sequence_next,
            row_id_start=base.row_id_next,
        )
        for entry in changes.changelog
    )
    if manifest_plan.fits_inline(entries):
        return Changelog(producer=changes.producer, entries=entries)
    stored = _stored_unnumbered(writer, changes.changelog, entries, base)
    return Changelog(producer=changes.producer, manifests=(stored,))


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
    manifests = _without(store, base.manifests, changes.located)
    inline = tuple(entry for entry in base.tail if entry.file not in changes.located.inline)
    plan = manifest_plan.plan_inline(inline, added)
    if plan.flush:
        manifests.append(store_entries(writer, inline))
        inline = ()
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
    return _Placement(manifests=_merged(store, manifests, writer), inline=inline, delta=delta)


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
    store: AtomicStore, references: Sequence[ManifestReference], writer: MetadataWriter
) -> tuple[ManifestReference, ...]:
    groups = {group[0]: group for group in manifest_plan.plan_merges(references)}
    taken = {position for group in groups.values() for position in group}
    result = []
    for position, reference in enumerate(references):
        if position in groups:
            group = [references[member] for member in groups[position]]
            result.append(rewrite_manifests(store, group, writer))
        elif position not in taken:
            result.append(reference)
    return tuple(result)


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
    if manifest_plan.fits_inline(slim):
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
