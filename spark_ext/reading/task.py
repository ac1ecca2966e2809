"""What tasks do to read: splits of a table become record batches in Spark's exact schema."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import types as st

from fermion.exports import dataclass
from fermion_table import Scan
from fermion_table.engine import ScanPart, Split, planned_parts, task_bytes
from fermion_table.options import OPEN_COST_BYTES
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


FILES_PLANNED_MAX = 10_000
"""Files whose splits the driver makes; of more it makes parts, of which tasks make the splits."""


@dataclass(frozen=True, slots=True)
class PartsTask:
    """Makes the splits of parts of a scan, and runs the task that reads them. Picklable.

    scan: See `fermion_table.engine.planned_parts`.
    """

    task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    scan: Scan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the task returns for the pickled parts that the rows of some batches hold."""
        keep_modules()
        return self.task(map(self._with_splits, batches))

    def _with_splits(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        listed = (pickle.loads(parts.as_py()) for parts in batch.column(0))
        splits = [pickle.dumps(list(splits_of(self.scan, parts))) for parts in listed]
        return pa.record_batch([pa.array(splits, pa.binary())], batch.schema.names)


def splits_of(scan: Scan, parts: Iterable[Split | ScanPart[Scan]]) -> Iterator[Split]:
    """Splits, and those of parts of a scan."""
    for part in parts:
        if isinstance(part, ScanPart):
            yield from part.of(scan).plan().splits
        else:
            yield part


def parts_of(scan: Scan, tasks_min: int = 1) -> tuple[Scan, Iterator[ScanPart[Scan]]] | None:
    """What `splits_of` takes, if a scan reads very many files, one part for each task; else None.

    tasks_min: See `fermion_table.ScanPlan.tasks`.
    """
    plan = scan.plan()
    files = len(plan.splits)
    if files <= FILES_PLANNED_MAX or scan.key is not None or scan.limit is not None:
        return None
    cost = plan.bytes + files * OPEN_COST_BYTES
    return planned_parts(scan, task_bytes(cost, tasks_min=tasks_min))


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
