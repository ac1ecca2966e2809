"""A scan as a lazy frame of Polars, which reads only the columns and rows that it uses.

Polars gives a lazy source its predicate and expects rows that hold at least those it selects; it
is applied to them once more. So a part that has no counterpart here may be left out of a
conjunction, and every part that is kept must mean exactly the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from fermion.display import names_text
from fermion.engine import filter_of_predicate
from fermion.errors import InvalidArgumentError

if TYPE_CHECKING:
    import polars

    from fermion_table.scanning.arrow_dataset import Scan


def lazy_frame(scan: Scan) -> polars.LazyFrame:
    """The rows of a scan, read when the frame is collected."""
    import polars  # optional, and slow to import
    from polars.io.plugins import register_io_source

    def source(
        with_columns: list[str] | None,
        predicate: polars.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[polars.DataFrame]:
        chosen = scan
        if predicate is not None and n_rows is None and scan.limit is None:
            pushed = filter_of_predicate(predicate, scan.schema)
            chosen = chosen if pushed is None else chosen.where(pushed)
        if with_columns is not None:
            chosen = chosen.select([(name,) for name in with_columns])
        for batch in chosen.head_scan(n_rows).to_batches():
            frame = polars.DataFrame(polars.from_arrow(batch))
            yield frame if predicate is None else frame.filter(predicate)

    return register_io_source(source, schema=polars_schema(scan.schema))


def polars_schema(schema: pa.Schema) -> polars.Schema:
    """What Polars calls the columns.

    Raises InvalidArgumentError: It has no types for some of them.
    """
    import polars

    def converted(part: pa.Schema) -> polars.Schema | None:
        if any("decimal256" in str(each.type) for each in part):  # found out too late, by a panic
            return None
        try:
            return polars.DataFrame(polars.from_arrow(part.empty_table())).schema
        except (polars.exceptions.PolarsError, polars.exceptions.PanicException):
            return None

    found = converted(schema)
    if found is None:
        lacking = [each for each in schema if converted(pa.schema([each])) is None]
        names = names_text([f"{each.name} ({each.type})" for each in lacking], "columns")
        raise InvalidArgumentError(
            f"Polars has no type for {names}: leave them out with scan(columns=[...])"
        )
    return found
