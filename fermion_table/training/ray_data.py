"""Tables as sources and targets of Ray Data, by the interfaces that Ray has for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from ray.data import Datasink, Datasource, ReadTask
from ray.data.block import Block, BlockAccessor, BlockMetadata

from fermion.arguments import integer
from fermion.errors import InvalidArgumentError
from fermion_table.planning.split import Split
from fermion_table.reading.split_reader import SplitReader
from fermion_table.scanning.scan import Scan
from fermion_table.table.table import Table


class RayDatasource(Datasource):
    """The rows of a scan: ``ray.data.read_datasource(RayDatasource(table.scan(...)))``.

    scan: Every task reads its snapshot, whatever is committed meanwhile. It has no limit: Ray's
        ``limit`` asks for fewer rows.
    """

    def __init__(self, scan: Scan) -> None:
        super().__init__()
        if not isinstance(scan, Scan):
            raise TypeError(f"scan: expected a Scan, found {type(scan).__name__}")
        if scan.limit is not None:
            raise InvalidArgumentError(
                "scan: a limit does not hold for its parts: use limit of Ray"
            )
        self._scan = scan

    def get_name(self) -> str:
        """What Ray calls the source in its logs."""
        return "Fermion"

    def estimate_inmemory_data_size(self) -> int | None:
        """Bytes of the files, which are some of the bytes of the rows."""
        return sum(split.bytes for split in self._scan.plan().splits)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Parts of the scan, of about equal cost.

        parallelism: How many tasks there are at least, if the files can be cut into so many.
        """
        tasks_min = integer(parallelism, "parallelism", minimum=1)
        reader, schema = self._scan.reader, self._scan.schema
        return [
            ReadTask(
                partial(_read, reader, schema, splits),
                BlockMetadata(
                    num_rows=None,
                    size_bytes=sum(split.bytes for split in splits),
                    exec_stats=None,
                    input_files=tuple(file.file for split in splits for file in split.files),
                ),
                schema=schema,
                per_task_row_limit=per_task_row_limit,
            )
            for splits in self._scan.plan().tasks(tasks_min=tasks_min)
        ]


def _read(reader: SplitReader, schema: pa.Schema, splits: Iterable[Split]) -> Iterator[pa.Table]:
    """What a task does."""
    for split in splits:
        for batch in reader.read(split, threads=1):
            yield pa.Table.from_batches([batch], schema=schema)


class RayDatasink(Datasink[list[Any]]):
    """Appends a dataset: ``dataset.write_datasink(RayDatasink(table))``.

    Tasks write data files, and one commit makes all of them visible, or none. Files of tasks that
    failed are named by no snapshot; `Table.remove_orphan_files` deletes them.

    table: Sees the new snapshot afterwards.
    options: As of `Table.commit`: ``message``, ``commit_user``, ``commit_identifier``, ...
    """

    def __init__(self, table: Table, **options: Any) -> None:
        if not isinstance(table, Table):
            raise TypeError(f"table: expected a Table, found {type(table).__name__}")
        self._table, self._options = table, options
        self._make_writer = table.writer_factory()

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need: no table."""
        return {"_make_writer": self._make_writer}

    def get_name(self) -> str:
        """What Ray calls the sink in its logs."""
        return "Fermion"

    def write(self, blocks: Iterable[Block], ctx: Any) -> list[Any]:
        """Write the rows of a task to data files; what the commit needs to know of them."""
        with self._make_writer() as writer:
            for block in blocks:
                writer.write(BlockAccessor.for_block(block).to_arrow())
            return list(writer.prepare_commit())

    def on_write_complete(self, write_result: Any) -> None:
        """Publish the files of all tasks."""
        messages = [message for each in write_result.write_returns for message in each]
        self._table.commit(messages, **self._options)
