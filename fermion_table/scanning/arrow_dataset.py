"""A scan in the shape of a `pyarrow.dataset.Dataset`, for engines that push down into those.

DuckDB and others ask a dataset for its `schema` and call `scanner(columns=..., filter=...)`; the
columns and the filter go into the scan, and so reach manifests, files, stripes and pages. NaN among
the values of ``isin`` finds NaN in these filters, as in pyarrow's own datasets.

Some functions of pyarrow look past these methods at the dataset of C++ that an object wraps, and
end the process if there is none. So the class is that of a dataset in memory, without rows, whose
only column says what to do: they fail with an error that shows its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset

from fermion.engine import with_wide_floats
from fermion.errors import InvalidArgumentError
from fermion.predicate import from_engine

_PLACEHOLDER = pa.schema({"a scan of Fermion: read it with to_table() first": pa.null()})


class Scan(Protocol):
    """What datasets and lazy frames ask of a scan (see `fermion_table.scanning.scan`)."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""

    @property
    def limit(self) -> int | None:
        """How many rows at most."""

    def select(self, columns: Sequence[tuple[str, ...]]) -> Scan:
        """The same with other columns."""

    def where(self, filter: Any) -> Scan:
        """The same with fewer rows."""

    def head_scan(self, n: int | None) -> Scan:
        """The same with at most ``n`` rows."""

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches."""

    def to_arrow(self) -> pa.Table:
        """The rows as a table."""

    def head(self, n: int = 10) -> pa.Table:
        """The first rows."""

    def count(self) -> int:
        """How many rows there are."""


class ScanDataset(pyarrow.dataset.InMemoryDataset):  # type: ignore[misc, unused-ignore]
    """The rows of a scan. Make one with `Scan.to_dataset`.

    last_scan: The last one that was asked for: its `explain` and `io_stats` show what was pushed
        down.
    """

    def __init__(self, scan: Scan) -> None:
        super().__init__([], schema=_PLACEHOLDER)
        self.scan = scan
        self.last_scan: Scan | None = None

    def __reduce__(self) -> tuple[type[ScanDataset], tuple[Scan]]:
        return ScanDataset, (self.scan,)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the scan."""
        return self.scan.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pa.compute.Expression | None = None,
        **options: Any,
    ) -> pyarrow.dataset.Scanner:
        """A scanner of some columns and rows; other options of pyarrow's scanners are left out.

        Raises InvalidArgumentError: Columns that are expressions.
        """
        return pyarrow.dataset.Scanner.from_batches(self._asked(columns, filter).to_reader())

    def count_rows(self, filter: pa.compute.Expression | None = None, **options: Any) -> int:
        """How many rows there are; without a filter no file is opened."""
        return self._asked([], filter).count()

    def head(self, num_rows: int, columns: Sequence[str] | None = None, **options: Any) -> pa.Table:
        """The first rows."""
        return self._asked(columns, options.get("filter")).head(num_rows)

    def to_batches(self, columns: Sequence[str] | None = None, **options: Any) -> Iterator[Any]:
        """The rows as record batches."""
        return self._asked(columns, options.get("filter")).to_batches()

    def to_table(self, columns: Sequence[str] | None = None, **options: Any) -> pa.Table:
        """The rows as a table."""
        return self._asked(columns, options.get("filter")).to_arrow()

    def filter(self, expression: pa.compute.Expression) -> ScanDataset:  # type: ignore[override, unused-ignore]
        """The rows that an expression selects."""
        return ScanDataset(self.scan.where(from_engine(expression)))

    def sort_by(self, sorting: Any, **options: Any) -> pyarrow.dataset.InMemoryDataset:
        """The rows in another order, all of them in memory."""
        return _in_memory(self).sort_by(sorting, **options)

    def join(
        self, right_dataset: Any, keys: Any, *args: Any, **options: Any
    ) -> pyarrow.dataset.InMemoryDataset:
        """The rows joined with those of another dataset, all of both in memory."""
        return _in_memory(self).join(_in_memory(right_dataset), keys, *args, **options)

    def join_asof(
        self, right_dataset: Any, *args: Any, **options: Any
    ) -> pyarrow.dataset.InMemoryDataset:
        """The rows joined with the nearest ones of another dataset, all of both in memory."""
        return _in_memory(self).join_asof(_in_memory(right_dataset), *args, **options)

    def replace_schema(self, schema: pa.Schema) -> ScanDataset:
        """Not offered: the table has the schema.

        Raises InvalidArgumentError.
        """
        raise InvalidArgumentError(
            "the schema of a scan can't be replaced; select columns, or change the table's schema"
        )

    def get_fragments(self, filter: pa.compute.Expression | None = None) -> Iterator[ScanFragment]:
        """One fragment: the whole scan, which prunes and reads its files when it is read.

        DataFusion's ``register_dataset`` asks for it. The filter selects fragments only.
        """
        yield ScanFragment(self)

    def __repr__(self) -> str:
        return f"<ScanDataset of {self.scan!r}>"

    def _asked(self, columns: Sequence[str] | None, filter: pa.compute.Expression | None) -> Scan:
        if isinstance(columns, dict):
            raise InvalidArgumentError("columns: expected names, not expressions")
        chosen = self.scan if columns is None else self.scan.select([(name,) for name in columns])
        self.last_scan = chosen if filter is None else chosen.where(from_engine(filter))
        return self.last_scan


class WideningDataset(ScanDataset):
    """The rows of a scan for DuckDB, which has no type for ``float16``: they come as ``float32``.

    Every value is the same there; in lists, structs, maps and dictionaries, too.
    """

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows as they come."""
        return _widened_schema(self.scan.schema)

    def scanner(self, *arguments: Any, **options: Any) -> pyarrow.dataset.Scanner:
        """A scanner of some columns and rows, as `ScanDataset.scanner`."""
        scan = self._asked(*arguments, **options)
        schema = _widened_schema(scan.schema)
        batches = (
            batch if batch.schema.equals(schema) else batch.cast(schema)
            for batch in self._batches(scan)
        )
        return pyarrow.dataset.Scanner.from_batches(
            pa.RecordBatchReader.from_batches(schema, batches)
        )

    def _batches(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """The rows of a scan."""
        return scan.to_batches()


class ScanFragment:
    """The rows of a scan as the only fragment of its dataset.

    dataset: Whose fragment it is.
    """

    partition_expression = pa.compute.scalar(True)

    def __init__(self, dataset: ScanDataset) -> None:
        self._dataset = dataset

    @property
    def physical_schema(self) -> pa.Schema:
        """The schema of the scan."""
        return self._dataset.schema

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> pyarrow.dataset.Scanner:
        """A scanner of some columns and rows, as `ScanDataset.scanner`.

        Raises InvalidArgumentError: Columns that are expressions, or another schema than the
            scan's.
        """
        if schema is not None and not schema.equals(self.physical_schema):
            self._dataset.replace_schema(schema)
        return self._dataset.scanner(**options)

    def to_batches(self, schema: pa.Schema | None = None, **options: Any) -> Iterator[Any]:
        """The rows as record batches."""
        return self.scanner(schema, **options).to_batches()

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """The rows as a table."""
        return self.scanner(schema, **options).to_table()

    def count_rows(self, **options: Any) -> int:
        """How many rows there are; without a filter no file is opened."""
        return self._dataset.count_rows(**options)

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows."""
        return self._dataset.head(num_rows, **options)


def _widened_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([with_wide_floats(field) for field in schema], metadata=schema.metadata)


def _in_memory(dataset: Any) -> Any:
    """The rows of a scan as a dataset that pyarrow's own functions can read; others as they are."""
    if not isinstance(dataset, ScanDataset):
        return dataset
    return pyarrow.dataset.InMemoryDataset(dataset.to_table())
