"""Rows put into the trees of a primary-key table, at any level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fermion.columns.rows import take_batch_rows
from fermion_table import Table
from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitRequest
from fermion_table.merge_engines.key_groups import group_rows
from fermion_table.merging.fold import fold
from fermion_table.merging.primary_key import primary_key_of
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Kind, Snapshot
from fermion_table.schema.key_encoding import key_ranks
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.writing.incoming_rows import partition_columns, split_batch
from fermion_table.writing.tree_writer import TreeWriter
from fermion_table.writing.writer_message import WriteSettings
from tests.kit.tables.merge_rows import Row, batch_of, kinds_of


def put(
    table: Table,
    rows: Sequence[Row],
    *,
    level: int = 0,
    removed: Sequence[Entry] = (),
    kind: Kind = "append",
    is_oldest: bool = False,
) -> Snapshot:
    """Commit rows, in order of time, as one run of each tree.

    Parameters
    ----------
    rows
        `_kind` is the kind, an insertion without it.
    level
        Of the files.
    removed
        Files that go with the same commit.
    is_oldest
        Whether to fold as a compaction to the top level does.
    """
    arrow = table.schema.to_arrow()
    added: list[Entry] = []
    with OwnedFiles(table.store) as owned:
        writer = TreeWriter(owned, table.schema, _key(table), settings=WriteSettings())
        numbered = [{**row, "_kind": row.get("_kind") or "+I"} for row in rows]
        batch, kinds = batch_of(numbered, arrow), kinds_of(numbered)
        places = dict.fromkeys(range(len(numbered)))
        for bucket in np.unique(_key(table).buckets(batch)).tolist() if numbered else []:
            inside = np.flatnonzero(_key(table).buckets(batch) == bucket)
            for partition, at in _partitions(table, batch, inside):
                for place in at.tolist():
                    del places[place]
                added += _run(
                    table,
                    writer,
                    partition,
                    bucket,
                    take_batch_rows(batch, at),
                    kinds[at],
                    level,
                    is_oldest,
                )
        assert not places
        owned.release()
    base = table.refresh()
    request = CommitRequest(kind=kind, added=added, removed=list(removed), base=base)
    commit(table.store, request, branch=table.branch)
    return table.refresh()


def _key(table: Table):
    key = primary_key_of(table.schema)
    assert key is not None
    return key


def _partitions(table: Table, batch, inside: np.ndarray):
    """Yield partitions, and the rows of each."""
    columns = partition_columns(table.schema)
    found: dict = {}
    for place in inside.tolist():
        ((partition, _),) = split_batch(batch.slice(place, 1), columns)
        found.setdefault(partition, []).append(place)
    for partition, places in found.items():
        yield partition, np.array(places)


def _run(table, writer, partition, bucket, batch, kinds, level, is_oldest) -> list[Entry]:
    key = _key(table)
    keys = key.keys(batch)
    numbers = keys.to_numpy() if key.is_direct else key_ranks(keys)
    groups = group_rows(
        numbers,
        np.arange(len(numbers)),
        sequence=[batch.column(name) for name in key.options.sequence_fields],
        is_descending=key.options.sequence_descending,
    )
    folded = fold(batch, groups, key, kinds, is_oldest=is_oldest)
    rows = folded.gather(batch) if folded.values else take_batch_rows(batch, folded.rows)
    kept = keys.take(pa.array(folded.rows))
    run = [(rows, kept, folded.kinds)]
    return writer.write_run(partition, bucket, level, run, has_kinds=folded.kinds is not None)
