"""Reads the rows of a section that no other run hides, for merge engines that pick rows.

The runs are read one after the other, the one that decides first, each file once, with all that the
query asks for, its filter included. Only the keys of the runs read so far are held: what has one of
these keys in a later run is left out. So nothing of the run that is asked last, usually by far the
largest, is read for the merge alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from fermion.engine import drop_batch_rows, numbers_of
from fermion_table.merge_engines.key_groups import is_retraction
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.options import MIB
from fermion_table.planning.split import FileSplit, ReadRequest
from fermion_table.reading.run_reader import Runs, key_filter, key_of
from fermion_table.reading.shared_file import FileAtHand, SharingReader
from fermion_table.reading.split_reader import SplitReader
from fermion_table.schema.conversion import empty_columns
from fermion_table.schema.schema import Field
from fermion_table.schema.selection import ROW_KIND
from fermion_table.trees.seen_keys import Columns, SeenKeys

HELD_KEYS_BYTES = 64 * MIB
"""Keys that are held of a section, roughly; where they would take more, `visible_rows` streams."""
BYTES_PER_KEY = 32
"""A guess, for keys that are not numbers."""


def holds_few_keys(runs: Runs, key: PrimaryKey) -> bool:
    """Whether `read_shown` can read a section.

    key: With an engine that picks rows.
    """
    if key.options.sequence_fields or any(split.keys_repeated for run in runs for split in run):
        return False
    rows = sum(split.rows for run in _in_order(runs, key)[:-1] for split in run)
    return rows * (8 if key.is_direct_in_tree else BYTES_PER_KEY) <= HELD_KEYS_BYTES


def read_shown(
    runs: Runs, reader: SplitReader, *, threads: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a section that the query selects, as the query wants them.

    runs: Of the section.
    reader: Of a request with a key, with an engine that picks rows; see `holds_few_keys`.
    threads: For decoding a file.
    """
    request, files = reader.request, FileAtHand(reader.io)
    key = key_of(request)
    seen = SeenKeys(key)
    by_name = {field.name: field for field in request.table_fields}
    keys = tuple(by_name[name] for name in key.tree_names)
    wanted = {field.id for field in request.fields}
    missing = tuple(field for field in keys if field.id not in wanted)
    rows = _Readers(replace(request, fields=(*request.fields, *missing)), reader, files)
    bare = replace(request, fields=keys, filter=key_filter(request.filter, key), metadata=None)
    bare_rows = _Readers(bare, reader, files)
    is_filtered = request.filter is not None and request.filter != bare.filter
    ordered = _in_order(runs, key)
    try:
        for run in ordered:
            found: list[Columns | pa.Array] = []
            hides = run is not ordered[-1]
            for split in run:
                if hides and is_filtered:
                    batches = bare_rows.of(split).read_file(split, threads=threads)
                    found += map(seen.of, batches)
                for batch in rows.of(split).read_file(split, threads=threads):
                    own = seen.of(batch)
                    if hides and not is_filtered:
                        found.append(own)
                    hidden = _hidden(batch, split, own, seen)
                    if len(hidden) < batch.num_rows:
                        yield _as_asked(batch, hidden, reader.schema)
            if hides:
                seen.add(found)
    finally:
        files.close()


def _in_order(runs: Runs, key: PrimaryKey) -> Runs:
    """The runs, the one whose rows hide those of all others first."""
    return runs[::-1] if key.engine.oldest_wins else runs


def _hidden(
    batch: pa.RecordBatch, split: FileSplit, keys: Columns | pa.Array, seen: SeenKeys
) -> np.ndarray:
    """Rows of a batch that are not shown: ``int64``, ascending."""
    hidden = seen.places(keys)
    if not split.retractions:
        return hidden
    kinds = numbers_of(batch.column(batch.num_columns - 1))
    return np.union1d(hidden, np.flatnonzero(is_retraction(kinds)))


def _as_asked(batch: pa.RecordBatch, hidden: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
    """The other rows, with the first columns alone: those that were asked for."""
    if not len(schema):
        return empty_columns(schema, batch.num_rows - len(hidden))
    columns = batch.columns[: len(schema)]
    return drop_batch_rows(pa.RecordBatch.from_arrays(columns, schema=schema), hidden)


class _Readers:
    """A reader of files without retractions, and one that reads kinds too, as the last column."""

    def __init__(self, request: ReadRequest, reader: SplitReader, files: FileAtHand) -> None:
        with_kinds: tuple[Field, ...] = (*request.fields, ROW_KIND)
        self._plain, self._with_kinds = (
            SharingReader(each, reader, files)
            for each in (request, replace(request, fields=with_kinds))
        )

    def of(self, split: FileSplit) -> SplitReader:
        """The reader of a file."""
        return self._with_kinds if split.retractions else self._plain
