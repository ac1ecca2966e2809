"""Methods of `Table` by which it is data: the rows of the snapshot that it sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

import pyarrow as pa

from fermion.arguments import integer
from fermion.progress import ShowsProgress
from fermion.redaction import redacted
from fermion.typing import FilterLike
from fermion_table.inspection.description import describe_columns
from fermion_table.schema.schema import PathLike
from fermion_table.table.reading import scan
from fermion_table.table.state import HasState

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

    from fermion_table.scanning.sql import SqlResult


def head(self: HasState, n: int = 10) -> pa.Table:
    """The first rows, as `Scan.head`; of the snapshot that this object sees."""
    return scan(self).head(n)


def count(self: HasState, filter: FilterLike | None = None) -> int:
    """Count the rows, or those that a filter selects, as `Scan.count`.

    Parameters
    ----------
    filter
        As in `scan`.
    """
    return scan(self, filter=filter).count()


def sample(self: HasState, n: int, *, seed: int | None = None) -> pa.Table:
    """Rows drawn at random, as `Scan.sample`.

    Parameters
    ----------
    n
        How many; all where there are fewer.
    seed
        The same one draws the same rows of a snapshot; None: others each time.
    """
    return scan(self).sample(n, seed=seed)


def describe(
    self: HasState, columns: Sequence[PathLike] | None = None, *, sample: int = 1000
) -> pa.Table:
    """The columns, one a row, with what is known of their values; reads few rows or none.

    Parameters
    ----------
    columns
        Names of columns; None: all.
    sample
        So many rows are drawn, of the first 100 columns, to estimate what statistics do not tell;
        0 opens no data file.

    Returns
    -------
    pa.Table
        ``column``, ``type``, ``nulls``, ``min``, ``max`` (as text), ``distinct`` (an estimate from
        the rows drawn), and where nulls and bounds come from, ``source``: ``exact``, ``stored``
        (statistics of files, which hold rows that were deleted or replaced, too, or long texts
        whose bounds are cut, ``ab…``: all values lie within), ``sampled``, or null where nothing is
        known.
    """
    sample = integer(sample, "sample", minimum=0)
    return describe_columns(scan(self, columns=columns), sample)


def to_arrow(self: HasState, *, progress: ShowsProgress = None) -> pa.Table:
    """All rows as a table, in memory. `scan` reads some columns, filters, or streams.

    Parameters
    ----------
    progress
        As of `append`, of the rows that are read.
    """
    return scan(self).to_arrow(progress=progress)


def to_pandas(self: HasState, **options: Any) -> pandas.DataFrame:
    """All rows as a pandas frame; options are those of `pyarrow.Table.to_pandas`."""
    return scan(self).to_pandas(**options)


@overload
def to_polars(self: HasState, *, lazy: Literal[True] = True) -> polars.LazyFrame: ...


@overload
def to_polars(self: HasState, *, lazy: Literal[False]) -> polars.DataFrame: ...


@overload
def to_polars(self: HasState, *, lazy: bool) -> polars.DataFrame | polars.LazyFrame: ...


def to_polars(self: HasState, *, lazy: bool = True) -> polars.DataFrame | polars.LazyFrame:
    """All rows as a lazy frame of Polars, which reads only the columns and rows that it uses.

    Parameters
    ----------
    lazy
        False reads all of them.
    """
    return scan(self).to_polars(lazy=lazy)


def to_duckdb(
    self: HasState, connection: duckdb.DuckDBPyConnection | None = None
) -> duckdb.DuckDBPyRelation:
    """All rows as a relation of DuckDB, which reads only the columns and rows that it uses.

    Parameters
    ----------
    connection
        None: DuckDB's default one.
    """
    return scan(self).to_duckdb(connection)


def sql(self: HasState, query: str) -> SqlResult:
    """Answer a query of SQL, in which this table is called ``this``; DuckDB computes it.

    Only the columns and the rows are read that it needs: filters skip files, stripes and pages.

    Parameters
    ----------
    query
        Such as ``"SELECT city, max(price) FROM this WHERE year = 2025 GROUP BY city"``. Columns
        that are called like words of SQL (``at``, ``order``) go in double quotes.

    Returns
    -------
    SqlResult
        Rows as those of a scan: ``to_arrow()``, ``to_pandas()``, ``to_polars()``, ``head()``.

    Raises
    ------
    TypeError
        The query is no text.
    InvalidArgumentError
        DuckDB is not installed (the extra ``duckdb``); or the query is wrong, several, or one that
        writes: says what to call instead.
    """
    from fermion_table.scanning.sql import SqlResult  # pyarrow.dataset is slow to import

    where = f"{redacted(self._state.location)}: sql"
    return SqlResult(query, {("this",): scan(self)}, where=where)


def arrow_c_stream(self: HasState, requested_schema: object | None = None) -> object:
    """All rows as an Arrow C stream: ``pa.table(table)`` and ``pl.DataFrame(table)`` read it."""
    return scan(self).__arrow_c_stream__(requested_schema)


def no_length(self: HasState) -> NoReturn:
    """Refuse ``len(table)``: counting may read files.

    Raises
    ------
    TypeError
    """
    raise TypeError(
        f"{self._state.location}: a table has no len(): call table.count(), or len(table.columns) "
        "for the number of columns"
    )
