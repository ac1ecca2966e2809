"""Values computed elsewhere, put into columns of the rows that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from fermion.arguments import first_repeated
from fermion.engine import one_batch, read_all, take_batch_rows
from fermion.errors import InvalidArgumentError, column_not_found
from fermion.exports import dataclass
from fermion.predicate import RowRanges
from fermion_table.commit.commit import Publisher
from fermion_table.commit.request import CommitMetadata
from fermion_table.commit.schema_versions import evolved_schema
from fermion_table.errors import SchemaMismatch
from fermion_table.metadata.history import SchemaVersions
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.operations.assignments import overlaid, whole_table
from fermion_table.operations.column_commit import ColumnChange, Made, check_fillable
from fermion_table.operations.merge_source import SourceKeys, check_join_type, key_filter
from fermion_table.planning.filters import table_filter
from fermion_table.planning.plan import splits_of
from fermion_table.reading.whole_rows import column_reader, whole_batches
from fermion_table.scanning.scan import FileScan
from fermion_table.schema.changes import merge_columns
from fermion_table.schema.conversion import convert, find_null, plan_column
from fermion_table.schema.repeated import nulls
from fermion_table.schema.schema import TableSchema
from fermion_table.schema.selection import ROW_ID
from fermion_table.writing.column_files import schema_of_columns, write_column_file

Unmatched = Literal["error", "null", "ignore"]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a file that get values: their numbers in the file, ascending, and in the data."""

    own: np.ndarray
    given: np.ndarray


class FilledColumns(ColumnChange):
    """What `Table.fill_columns` does.

    publisher, metadata: As of a `ColumnChange`.
    on: Columns that tell the rows; none: the ids of rows, in `ROW_ID`.
    columns: Those to fill; None: all other ones of the data.
    unmatched: What becomes of rows without a partner; see `Table.fill_columns`.
    """

    def __init__(
        self,
        publisher: Publisher,
        metadata: CommitMetadata,
        data: Any,
        *,
        on: tuple[str, ...] = (),
        columns: tuple[str, ...] | None = None,
        unmatched: Unmatched | None = None,
    ) -> None:
        super().__init__(publisher, "fill_columns", metadata)
        self._on, self._unmatched = on, unmatched
        self._asked = metadata
        rows = read_all(data)
        where = f"{self.store.location}: {self.action}: data"
        names = rows.schema.names
        keys = on or (ROW_ID.name,)
        self._names = tuple(each for each in names if each not in keys)
        if columns is not None:
            self._names = columns
        if not self._names:
            raise InvalidArgumentError(f"{where}: expected a column to fill")
        known = set(names)
        for name in (*keys, *self._names):
            if name not in known:
                raise column_not_found(name, names, where=where)
        wanted = {*keys, *self._names}
        repeated = first_repeated((*keys, *self._names)) or first_repeated(
            name for name in names if name in wanted
        )
        if repeated is not None:
            raise InvalidArgumentError(f"{where}: column {repeated!r} is there twice")
        self._rows = whole_table(rows.select([*keys, *self._names]), where)

    def schema_on(self, base: Snapshot) -> TableSchema | None:
        """The snapshot's schema with the columns that it lacks."""
        current = SchemaVersions(self.store, base).current
        check_fillable(current, self._names, self.action, self.store.location)
        new = [self._rows.schema.field(name) for name in self._names if name not in current.by_name]
        return evolved_schema(self.publisher.store, base, merge_columns(current, pa.schema(new)))

    def made_for(
        self, base: Snapshot, schemas: SchemaVersions, schema: TableSchema, entries: list[Entry]
    ) -> Made:
        """Write the columns of the files that have rows of the data."""
        self.files.delete()  # of an earlier try: other commits may have changed what it has read
        columns = schema_of_columns(schema, self._names)
        values = self._values(columns)
        if self._on:
            found = self._by_key(base, schemas, entries)
        else:
            found = self._by_id(schemas, entries)
        matched = {entry.file: rows for entry, rows in found if len(rows.own)}
        self._report(base, matched)
        if self._unmatched == "null" and not schemas.current.by_name.keys().isdisjoint(self._names):
            values, matched = self._with_nulls(values, matched, entries)
        return {
            entry.file: (
                self._file(entry, matched[entry.file], values, columns, schemas),
                columns,
            )
            for entry in entries
            if entry.file in matched
        }

    def _report(self, base: Snapshot, matched: Mapping[str, _Rows]) -> None:
        """Tell in the commit's properties which rows have no partner, or refuse them."""
        used = np.zeros(self._rows.num_rows, bool)
        for rows in matched.values():
            used[rows.given] = True
        count = sum(len(rows.own) for rows in matched.values())
        counts = {
            "matched": count,
            "unmatched_source": int((~used).sum()),
            "unmatched_target": max(base.totals.live_rows - count, 0),
        }
        shown = ", ".join(f"{name} {number:,}" for name, number in counts.items())
        key = list(self._on) or [ROW_ID.name]
        where = f"{self.store.location}: {self.action}: on {key}"
        if self._unmatched is None and len(used) and not count:
            raise InvalidArgumentError(
                f"{where}: no row of the data matches one of the table ({shown}): the data's first "
                f"is {self._rows.select(key).slice(0, 1).to_pylist()[0]}; unmatched='ignore' takes "
                "no row to be right"
            )
        if self._unmatched == "error" and any(list(counts.values())[1:]):
            first = self._rows.select(key).filter(pa.array(~used)).slice(0, 1).to_pylist()
            example = f"; the data's first without a partner is {first[0]}" if first else ""
            raise InvalidArgumentError(f"{where}: rows have no partner ({shown}){example}")
        told = {name: str(number) for name, number in counts.items()}
        properties = {**told, **(self._asked.properties or {})}
        self.metadata = replace(self._asked, properties=properties)

    def _with_nulls(
        self, values: pa.RecordBatch, matched: Mapping[str, _Rows], entries: Sequence[Entry]
    ) -> tuple[pa.RecordBatch, dict[str, _Rows]]:
        """Values for every row of every file: nulls, behind the others, where there are none."""
        for field in values.schema:
            if not field.nullable:
                raise SchemaMismatch(
                    f"{self.store.location}: {self.action}: column {field.name!r} is NOT NULL, and "
                    "rows of the table that match none would be null"
                )
        behind = pa.RecordBatch.from_arrays(
            [nulls(field.type, 1) for field in values.schema], schema=values.schema
        )
        every = {}
        for entry in entries:
            given = np.full(entry.rows, values.num_rows, np.int64)
            rows = matched.get(entry.file)
            if rows is not None:
                given[rows.own] = rows.given
            every[entry.file] = _Rows(np.arange(entry.rows), given)
        return one_batch([values, behind]), every

    def _values(self, columns: TableSchema) -> pa.RecordBatch:
        """The values to fill in, in the types of the columns."""
        arrays = []
        arrow = columns.to_arrow(field_ids=False)
        for field, target in zip(columns.fields, arrow, strict=True):
            given = self._rows.column(field.name)
            try:
                array = convert(plan_column(field, given.type), given)
            except SchemaMismatch as error:
                raise SchemaMismatch(f"{self.store.location}: {self.action}: {error}") from None
            where = find_null(target, array)
            if where is not None:
                raise SchemaMismatch(
                    f"{self.store.location}: {self.action}: column {where!r} is NOT NULL, and the "
                    "data has a null"
                )
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=arrow)

    def _by_id(
        self, schemas: SchemaVersions, entries: Sequence[Entry]
    ) -> Iterator[tuple[Entry, _Rows]]:
        column = self._rows.column(0)
        where = f"{self.store.location}: {self.action}: data: column {ROW_ID.name!r}"
        if not pa.types.is_integer(column.type) or column.null_count:
            found = "nulls" if pa.types.is_integer(column.type) else str(column.type)
            raise InvalidArgumentError(f"{where}: expected int64 without nulls, found {found}")
        ids = column.cast(pa.int64()).to_numpy()
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        if (np.diff(ids) == 0).any():
            twice = ids[:-1][np.diff(ids) == 0][0]
            raise InvalidArgumentError(f"{where}: row {twice} is there twice")
        for entry in entries:
            first = entry.row_id_base or 0
            low, high = np.searchsorted(ids, [first, first + entry.rows])
            rows = _Rows(ids[low:high] - first, order[low:high])
            if low < high and entry.deletion_vector is not None:
                fields = schemas.current.fields[:1]
                reader = column_reader([entry], self.store, fields, fields, schemas)
                (split,) = splits_of([entry], self.store)
                live = reader.rows(split)
                if live is not None:
                    is_live = np.isin(rows.own, live.to_indices())
                    rows = _Rows(rows.own[is_live], rows.given[is_live])
            yield entry, rows

    def _by_key(
        self, base: Snapshot, schemas: SchemaVersions, entries: Sequence[Entry]
    ) -> Iterator[tuple[Entry, _Rows]]:
        schema, where = schemas.current, f"{self.store.location}: {self.action}: on"
        keys = []
        for place, name in enumerate(self._on):
            if name not in schema.by_name:
                raise column_not_found(name, schema.names, where=where)
            field, given = schema.by_name[name], self._rows.column(place)
            check_join_type(name, field.type)
            try:
                keys.append(convert(plan_column(field, given.type), given))
            except SchemaMismatch as error:
                raise SchemaMismatch(f"{where}: {error}") from None
        source = SourceKeys(keys)
        if source.repeated is not None:
            one, other = source.repeated
            raise InvalidArgumentError(
                f"{where}: rows {one} and {other} of the data have the same {list(self._on)}"
            )
        fields = tuple(schema.by_name[name] for name in self._on)
        chosen = key_filter(self._on, source, {each.name: each.type for each in fields})
        pruning = FileScan(
            store=self.store,
            snapshot=base,
            schemas=schemas,
            table_schema=schema,
            columns=(),
            filter=table_filter(chosen, schema, where=where),
            files=tuple(entries),
        )
        may_match = {entry.file for entry in pruning.entries[0]}
        reader = column_reader(entries, self.store, fields, fields, schemas)
        for entry in entries:
            if entry.file not in may_match:
                continue
            (split,) = splits_of([entry], self.store)
            live = reader.rows(split)
            read = list(reader.read_file(split, rows=live))
            if not read:
                continue
            rows, given = source.match(one_batch(read).columns)
            yield entry, _Rows(rows if live is None else live.to_indices()[rows], given)

    def _file(
        self,
        entry: Entry,
        rows: _Rows,
        values: pa.RecordBatch,
        columns: TableSchema,
        schemas: SchemaVersions,
    ) -> Entry:
        """Write the columns of a file: what they were, with the values filled in."""
        reader = column_reader([entry], self.store, columns.fields, columns.fields, schemas)
        (split,) = splits_of([entry], self.store)
        every = RowRanges.all(entry.rows)

        def filled() -> Iterator[pa.RecordBatch]:
            start = 0
            for batch in reader.read_file(split, rows=every):
                low, high = np.searchsorted(rows.own, [start, start + batch.num_rows])
                if low < high:
                    mask = np.zeros(batch.num_rows, bool)
                    mask[rows.own[low:high] - start] = True
                    batch = overlaid(batch, take_batch_rows(values, rows.given[low:high]), mask)
                start += batch.num_rows
                yield batch

        if entry.batch is None:
            return write_column_file(self.store, columns, filled(), None, self.files)
        batches = whole_batches(filled(), reader.batches(split, rows=every), values.schema)
        return write_column_file(self.store, columns, None, batches, self.files)
