"""One small file with a feature of the format: what is in it and how it is written."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import fermion

ROWS = 12


@dataclass(frozen=True)
class Feature:
    """One small file.

    Attributes
    ----------
    table
        All rows.
    options
        `fermion.WriteOptions` by name.
    batches
        In batch mode: id and rows of each batch, in order; None for plain rows.
    positions
        Of the rows of each batch; None: they count from 0.
    metadata
        Key/value metadata.
    filter
        A filter that selects some rows.
    added
        Columns that are added after the file was written; one more is dropped, and all are put in
        another order.
    has_orders
        Whether the dictionaries of each of its batches are to be kept.
    """

    table: pa.Table
    options: dict[str, Any] = field(default_factory=dict)
    batches: Sequence[tuple[int | None, int]] | None = None
    positions: Sequence[Sequence[int]] | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    filter: str | None = None
    added: Sequence[str] = ()
    has_orders: bool = False

    def write(self, sink: Any) -> None:
        """Write the file to anything that a writer takes."""
        if not self.added:
            self._write(sink)
            return
        first, second = io.BytesIO(), io.BytesIO()
        old = [name for name in self.table.column_names[::-1] if name not in self.added]
        rows = self.table.select(old).append_column("dropped", [range(self.table.num_rows)])
        replace(self, table=rows)._write(first)
        new = self.table.select(self.added)
        fermion.add_columns(first.getvalue(), new, destination=second)
        columns = [(*old, "dropped", *self.added).index(name) for name in self.table.column_names]
        fermion.select_columns(second.getvalue(), columns, destination=sink)

    def _write(self, sink: Any) -> None:
        options = fermion.WriteOptions(**self.options)
        with fermion.Writer(
            sink, self.table.schema, options=options, key_value_metadata=self.metadata
        ) as writer:
            if self.batches is None:
                writer.write(self.table)
                return
            start = 0
            for number, (batch_id, rows) in enumerate(self.batches):
                positions = None if self.positions is None else self.positions[number]
                data = self.table.slice(start, rows)
                writer.append_batch(batch_id, data, positions=positions)
                start += rows

    def index_in_batch(self) -> list[int]:
        """The position of every row in its batch."""
        counted = [range(rows) for _, rows in self.batches or ()]
        return [position for batch in self.positions or counted for position in batch]

    def of(self, columns: list[str]) -> Feature:
        """The feature with some of its columns alone."""
        options = dict(self.options)
        for kind in ("bloom_filters", "page_bloom_filters", "summaries"):
            if kind in options:
                options[kind] = [name for name in columns if name in options[kind]]
        options.pop("sorted_by", None)
        if "global_dictionaries" in options:
            shared = options["global_dictionaries"]
            options["global_dictionaries"] = [
                name for name in shared if name.split(".")[0] in columns
            ]
        for kind in {"encodings", "shred"} & options.keys():
            given = options[kind]
            options[kind] = {name: given[name] for name in columns if name in given}
        return replace(self, table=self.table.select(columns), options=options)

    def stored(self) -> bytes:
        """The file's bytes."""
        sink = io.BytesIO()
        self.write(sink)
        return sink.getvalue()


def with_nulls(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    """The values, every fourth null: too few to leave the null slots out of pages."""
    return pa.array([None if i % 4 == 1 else value for i, value in enumerate(values)], dtype)
