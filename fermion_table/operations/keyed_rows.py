"""Deletes and updates of a primary-key table: the rows that a filter selects are written again.

No file is changed: a deleted row is written as a retraction, an updated one with its new values,
and merging by key does the rest. What is decided rests on all rows of the keys that the filter may
select, so another commit matters if it wrote such keys, whatever else its rows hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.manifest import Entry
from fermion_table.operations.assignments import Assignment, assigned, carries_blobs
from fermion_table.operations.draft import Draft
from fermion_table.planning.filters import TableFilter
from fermion_table.planning.partition_pruning import partitions_replaced
from fermion_table.planning.plan import plan_scan
from fermion_table.reading.run_reader import key_filter
from fermion_table.reading.whole_rows import known_blobs
from fermion_table.scanning.scan import Scan
from fermion_table.schema.repeated import repeat_text
from fermion_table.schema.schema import KIND_COLUMN
from fermion_table.writing.make_writer import write_changes


def delete_rows(draft: Draft, key: PrimaryKey, chosen: TableFilter) -> None:
    """Delete the rows that a filter selects.

    Raises InvalidArgumentError: The table's merge engine keeps deleted rows.
    """
    key.engine.check_removes(key.options, "delete")
    scan = draft.scan(chosen, carries_blobs=True)
    _write(draft, scan, (of_kind(rows, "-D") for rows in scan.to_batches()))


def replace_rows(draft: Draft, key: PrimaryKey, chosen: TableFilter) -> None:
    """Take away the rows that a filter selects, for others to take their place.

    Of a filter that selects whole partitions (see `partitions_replaced`) their files are removed:
    nothing is left of their rows' history, and the partitions get the number of buckets that the
    settings say. Other rows are deleted.

    Raises InvalidArgumentError: The filter selects others, and the table's merge engine keeps
        deleted rows; or it has sequence fields, by which a new row could be older than the
        deletion, and not show.
    """
    live = draft.live()
    partitions = list({entry.partition for entry in live})
    gone = partitions_replaced(partitions, draft.schema, chosen)
    if gone is None:
        if key.options.sequence_fields:
            raise InvalidArgumentError(
                "overwrite: with sequence.field a filter selects whole partitions only, as a new "
                "row with a smaller sequence than the deleted one would not show; upsert the "
                "rows, or overwrite whole partitions"
            )
        delete_rows(draft, key, chosen)
        return
    for entry in live:
        if entry.partition in gone:
            draft.remove(entry)


def update_rows(
    draft: Draft, key: PrimaryKey, chosen: TableFilter, assignments: Mapping[str, Assignment]
) -> None:
    """Set columns of the rows that a filter selects.

    Raises InvalidArgumentError: A column of the key or a sequence field is set, or the table's
        merge engine does not replace rows.
    """
    fixed = dict.fromkeys(key.names, "the primary key")
    fixed |= dict.fromkeys(key.options.sequence_fields, "sequence.field")
    for name in assignments:
        if name in fixed:
            raise InvalidArgumentError(
                f"update: column {name!r} is of {fixed[name]}: upsert the new rows, and delete "
                "those of the old keys"
            )
    is_replacing = key.engine.replaces
    if not is_replacing:
        key.engine.check_removes(key.options, "update")

    scan = draft.scan(chosen, carries_blobs=carries_blobs(draft.schema, assignments))

    def changed() -> Iterator[pa.RecordBatch]:
        for rows in scan.to_batches():
            if not is_replacing:
                yield of_kind(rows, "-D")
            yield of_kind(assigned(rows, assignments, draft.schema), "+U")

    _write(draft, scan, changed())


def keys_may_match(entry: Entry, draft: Draft, key: PrimaryKey, chosen: TableFilter) -> bool:
    """Whether a file that another commit added may hold keys of rows that a filter selects."""
    wanted = key_filter(chosen, key)
    if wanted is None or entry.schema_id not in draft.schemas:
        return True
    kept, _ = plan_scan([entry], draft.schemas, draft.schema, wanted)
    return bool(kept)


def of_kind(rows: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """Rows with a column `KIND_COLUMN` that says what they do."""
    return rows.append_column(KIND_COLUMN, repeat_text(kind, rows.num_rows))


def _write(draft: Draft, scan: Scan, batches: Iterator[pa.RecordBatch]) -> None:
    """Write rows with their kinds, which are made of those of a scan."""
    with draft.writer(known_blobs=known_blobs(scan.reader, scan.entries[0])) as writer:
        for rows in batches:
            write_changes(writer, rows, KIND_COLUMN, copy=False)
        (message,) = writer.prepare_commit()
    draft.add_written(message.entries)
