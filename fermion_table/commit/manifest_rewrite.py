"""Entries stored as a manifest; several manifests written again as one, without what is dead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from fermion_table.metadata.manifest import Entry, ManifestReference, PartitionRange, reference_to
from fermion_table.metadata.manifest_store import (
    MetadataWriter,
    live_ordinals,
    manifest_entries,
    manifest_files,
)
from fermion_table.metadata.packed_manifest import (
    PackedFiles,
    can_pack,
    packed_table,
    with_inherited,
)
from fermion_table.options import PACK_ENTRIES_MIN
from fermion_table.storage.store import AtomicStore


def rewrite_manifests(
    store: AtomicStore, references: Sequence[ManifestReference], writer: MetadataWriter
) -> ManifestReference:
    """The live entries of manifests in one manifest, in their order; many of them are packed.

    Columns and keys that this version does not know are kept.
    """
    is_packed = any(each.kind == "packed" for each in references)
    if is_packed or sum(each.live_entries for each in references) >= PACK_ENTRIES_MIN:
        tables = [_table(store, each) for each in references]
        known = [table for table in tables if table is not None]
        if len(known) == len(tables):
            merged = pa.concat_tables(known, promote_options="default")
            stored = writer.write_packed(merged)
            return merged_reference(references, stored.path, stored.hash, stored.size)
    entries = [
        entry for each in references for entry in manifest_entries(store, each, keep_unknown=True)
    ]
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


def _table(store: AtomicStore, reference: ManifestReference) -> pa.Table | None:
    """The live entries as columns; None if they do not fit into columns."""
    files = manifest_files(store, reference)
    if isinstance(files, PackedFiles):
        return with_inherited(files.table(live_ordinals(reference)), reference)
    entries = manifest_entries(store, reference, keep_unknown=True)
    return packed_table(entries) if can_pack(entries) else None


def _span(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _partitions(ranges: Sequence[PartitionRange]) -> PartitionRange:
    """Bounds of all; a field without bounds in one of them has none."""
    if any(len(each.nulls) != len(ranges[0].nulls) for each in ranges):
        return PartitionRange()
    return PartitionRange(
        min=tuple(_least(values) for values in zip(*(each.min for each in ranges), strict=True)),
        max=tuple(_greatest(values) for values in zip(*(each.max for each in ranges), strict=True)),
        nulls=tuple(any(flags) for flags in zip(*(each.nulls for each in ranges), strict=True)),
    )


def _least(values: Sequence[Any]) -> Any:
    try:
        return None if None in values else min(values)
    except TypeError:  # values that do not compare
        return None


def _greatest(values: Sequence[Any]) -> Any:
    try:
        return None if None in values else max(values)
    except TypeError:  # the same
        return None
