"""What tasks do to aggregate: splits of a table become partial results of groups."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator

import pyarrow as pa

from fermion.engine import one_batch
from fermion.exports import dataclass
from fermion_table.engine import Split, SplitReader
from spark_ext.aggregation.groups import Grouping, Groups
from spark_ext.aggregation.whole import whole_row
from spark_ext.exchange import convert_batches
from spark_ext.types import exchange_schema
from spark_ext.workers import keep_modules

JOINED_ROWS = 16_384
"""Rows of small batches that are aggregated together: each call of Arrow costs some time."""
JOINED_BYTES = 16 * 1024 * 1024
"""Bytes of batches that are joined, at most."""


@dataclass(frozen=True, slots=True)
class AggregateTask:
    """Reads splits and aggregates their rows. Picklable.

    reader, schema: Of the columns of the expressions, and these columns as Spark takes them.
    grouping, results: What is computed, and the schema of the results.
    is_whole: Whether this task gets all rows, and returns the result of the query, not partial
        ones.
    """

    reader: SplitReader
    schema: pa.Schema
    grouping: Grouping
    results: pa.Schema
    is_whole: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Aggregate the rows of the pickled splits that the rows of some batches hold."""
        keep_modules()
        if not self.is_whole:
            yield from self._partials(batches, self.results)
            return
        partials = self._partials(batches, exchange_schema(self.grouping.schema()))
        yield whole_row(self.grouping, partials, self.results)

    def _partials(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        groups = Groups(self.grouping, schema)
        for batch in batches:
            for splits in batch.column(0):
                yield from self._read(groups, pickle.loads(splits.as_py()))
        yield from groups.finish()

    def _read(self, groups: Groups, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        read = (batch for split in splits for batch in self.reader.read(split, threads=1))
        for batch in joined_batches(read):
            for converted in convert_batches(batch, self.schema):
                yield from groups.add(converted)


def joined_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in their order; small batches that follow each other are copied into one."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and size + batch.nbytes > JOINED_BYTES:
            yield one_batch(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= JOINED_ROWS:
            yield one_batch(held)
            held, rows, size = [], 0, 0
    if held:
        yield one_batch(held)
