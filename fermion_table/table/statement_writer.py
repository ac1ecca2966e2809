"""Writes what a statement of an engine makes of rows of a primary-key table, in the engine's tasks.

Rows come with their kind, those of one key in one task, retractions first. What the statement may
not do is refused there: to leave two rows of a key, or to replace a row that it has not found.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from fermion.engine import BatchCopier
from fermion.errors import InvalidArgumentError
from fermion_table.merging.primary_key import required_key
from fermion_table.operations.merge_matching import MergeCounts
from fermion_table.schema.repeated import repeat_text
from fermion_table.schema.schema import KIND_COLUMN
from fermion_table.table.table import Table
from fermion_table.writing.deletions import deletions
from fermion_table.writing.make_writer import TableWriter, write_changes

DELETION, UPDATE, INSERTION = "-D", "+U", "+I"
"""Kinds of rows: one that goes, by its key; one in place of that of its key; a new one."""
LOOKUP_ROWS = 65_536
"""Keys that are looked up at once."""


class StatementWriter:
    """Writes rows of a statement with a writer of the table.

    Parameters
    ----------
    table
        At the snapshot that the statement has read.
    writer
        Of `Table.writer_factory`.
    """

    def __init__(self, table: Table, writer: TableWriter) -> None:
        self._table = table
        self._writer = writer
        self._key = required_key(table.schema, table.location, "a statement")
        types = [table.schema.by_name[name].type for name in self._key.names]
        self._copier = BatchCopier(pa.schema(zip(self._key.names, types, strict=True)))
        self._keys: dict[str, list[pa.RecordBatch]] = {DELETION: [], UPDATE: [], INSERTION: []}

    def write(self, rows: pa.RecordBatch, kinds: pa.Array) -> None:
        """Write rows, those that go before the others.

        Parameters
        ----------
        rows
            All columns of the table; of rows that go the key and the sequence fields count.
        kinds
            Of each row: `DELETION`, `UPDATE` or `INSERTION`.

        Raises
        ------
        InvalidArgumentError
            The table's merge engine does not remove or replace rows, or another kind.
        """
        left = rows.num_rows
        for kind, keys in self._keys.items():
            chosen = rows.filter(pc.equal(kinds, kind))
            left -= chosen.num_rows
            if not chosen.num_rows:
                continue
            keys.append(self._copier.copy(chosen.select(self._key.names)))
            if kind == DELETION:
                self._key.engine.check_removes(self._key.options, "delete")
                gone = deletions(self._table.schema, self._key, pa.table(chosen))
                write_changes(self._writer, gone, KIND_COLUMN)
                continue
            if kind == UPDATE and not self._key.engine.replaces:
                self._key.engine.check_removes(self._key.options, "update")
            changed = chosen.append_column(KIND_COLUMN, repeat_text(kind, chosen.num_rows))
            write_changes(self._writer, changed, KIND_COLUMN)
        if left:
            raise InvalidArgumentError(
                f"{left} rows are of no kind: {pc.unique(kinds).to_pylist()}"
            )

    def check(self) -> None:
        """Check the keys of all rows.

        Raises
        ------
        InvalidArgumentError
            Two rows have one key, or a new row would replace one that the statement leaves.
        """
        inserted = self._comparable(INSERTION)
        written = pa.chunked_array(inserted.chunks + self._comparable(UPDATE).chunks, inserted.type)
        updated, deleted = self._comparable(UPDATE), self._comparable(DELETION)
        is_replacing = self._key.engine.replaces
        both = is_replacing and pc.any(pc.is_in(updated, value_set=deleted)).as_py()
        if len(pc.unique(written)) < len(written) or both:
            raise InvalidArgumentError(
                f"{self._table.location}: two rows of this statement have one key "
                f"({', '.join(self._key.names)})"
            )
        if not len(inserted):
            return
        kept = pc.invert(pc.is_in(inserted, value_set=deleted))
        asked = pa.Table.from_batches(self._keys[INSERTION]).filter(kept)
        for start in range(0, asked.num_rows, LOOKUP_ROWS):
            keys = asked.slice(start, LOOKUP_ROWS)
            found = self._table.lookup(keys, columns=[(name,) for name in self._key.names])
            if found.num_rows:
                key = found.slice(0, 1).to_pylist()[0]
                raise InvalidArgumentError(
                    f"{self._table.location}: a new row has the key {key} of a row that is there, "
                    "and would replace it: match rows by the primary key"
                )

    @property
    def counts(self) -> MergeCounts:
        """How many rows were inserted, updated and deleted; a row of another key counts as both."""
        deleted, updated, inserted = (
            sum(rows.num_rows for rows in self._keys[kind])
            for kind in (DELETION, UPDATE, INSERTION)
        )
        if not self._key.engine.replaces:  # each update is a deletion before
            deleted -= updated
        return MergeCounts(inserted, updated, deleted)

    def _comparable(self, kind: str) -> pa.ChunkedArray:
        """The keys of the rows of a kind, in a form that can be compared."""
        dtype = pa.int64() if self._key.is_direct else pa.large_binary()
        return pa.chunked_array([self._key.keys(rows) for rows in self._keys[kind]], dtype)
