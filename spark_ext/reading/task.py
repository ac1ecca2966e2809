"""What tasks do to read: splits of a table become record batches in Spark's exact schema."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import types as st

from fermion.exports import dataclass
from fermion_table import Scan
from spark_ext.exchange import convert_batches
from spark_ext.versions import BARE_ROWS, SPARK
from spark_ext.workers import keep_modules


class Reader(Protocol):
    """What reads the splits of a scan, or of changes: see `Scan.reader` and `ChangeScan.reader`."""

    def read(self, split: Any, *, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Reads splits. Picklable.

    Raises UnsupportedBySpark: There is no column, and this Spark would lose rows without columns.
    """

    reader: Reader
    schema: pa.Schema

    def __post_init__(self) -> None:
        if not len(self.schema):
            SPARK.require(BARE_ROWS, "columns=[]")

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the pickled splits that the rows of some batches hold."""
        for batch in batches:
            for splits in batch.column(0):
                yield from self.read(pickle.loads(splits.as_py()))

    def read(self, splits: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        """Read the rows of some splits, in the exact schema that Spark takes."""
        keep_modules()
        for split in splits:
            for batch in self.reader.read(split, threads=1):
                yield from convert_batches(batch, self.schema)


def rows_alone(scan: Scan) -> int | None:
    """The number of rows of a scan without columns and filter, from metadata alone.

    None if the scan needs data files.
    """
    if len(scan.schema) or scan.filter is not None:
        return None
    return scan.plan().rows


def column_paths(schema: st.StructType) -> list[tuple[str, ...]]:
    """The columns of a Spark schema as a scan takes them: paths to the fields within structs."""
    paths: list[tuple[str, ...]] = []
    for field in schema:
        below = column_paths(field.dataType) if isinstance(field.dataType, st.StructType) else []
        paths += [(field.name, *path) for path in below] or [(field.name,)]
    return paths
