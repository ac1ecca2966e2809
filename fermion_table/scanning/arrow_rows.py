"""What reads rows as record batches gives them to every library in its own form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fermion.display import names_text
from fermion.exports import LoadedWhenAskedFor

if TYPE_CHECKING:
    import pandas
    import polars

    from fermion_table.scanning import polars_source
else:
    polars_source = LoadedWhenAskedFor("fermion_table.scanning.polars_source")


class ArrowRows(ABC):
    """Rows with a schema, which are read when a result is requested."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the result."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches."""

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """The rows as a table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """The rows as a pandas frame; options are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """The rows as a polars frame."""
        import polars  # optional, and slow to import

        polars_source.polars_schema(self.schema)
        return polars.DataFrame(polars.from_arrow(self.to_arrow()))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as an Arrow C stream."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


def types_hint(error: Exception, schemas: Iterable[pa.Schema]) -> str:
    """Which columns DuckDB has no type for, to be added to an error of it if that is what it is."""
    if "Arrow Type" not in str(error):
        return ""
    import duckdb  # optional; it has raised the error

    lacking = []
    with duckdb.connect(":memory:") as connection:
        for field in {each.name: each for schema in schemas for each in schema}.values():
            try:
                connection.from_arrow(pa.schema([field]).empty_table())
            except duckdb.Error:
                lacking.append(f"{field.name} ({field.type})")
    return (
        f"\nDuckDB has no type for {names_text(sorted(lacking), 'columns')}: leave them out with "
        "scan(columns=[...]).to_duckdb()"
    )
