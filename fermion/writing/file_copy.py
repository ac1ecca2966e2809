"""A file copied byte for byte, and what its copy holds, as a writer would say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fermion.io.sink import copy_start, open_sink
from fermion.metadata.file_info import BatchRange, FileInfo
from fermion.reading.column_metadata import stored_statistics
from fermion.reading.file import FermionFile
from fermion.reading.index import FileIndex
from fermion.statistics.bounds import ColumnStatistics, merge_columns


def copy_file(
    file: FermionFile,
    target: str,
    *,
    durable: bool = True,
    storage_options: dict[str, Any] | None = None,
) -> FileInfo:
    """Copy an open file; the copy appears when it is complete, and has the same `file_id`.

    Parameters
    ----------
    target
        A path or a URL.
    durable
        See `WriteOptions`.

    Returns
    -------
    FileInfo
        Its statistics are read, from metadata, when they are asked for.
    """
    index = file.index
    source = index.source.source
    size = index.footer.file_length
    sink = open_sink(target, durable=durable, storage_options=storage_options)
    try:
        copy_start(source, sink, size)
        sink.commit()
    except BaseException:
        sink.abort()
        raise
    lengths = index.cit.ranges(range(file.num_columns))[:, 1]
    return FileInfo(
        path=target,
        size=size,
        tail_length=size - index.footer.tail_offset,
        num_rows=file.num_rows,
        num_columns=file.num_columns,
        num_stripes=file.num_stripes,
        columns_with_data=frozenset(np.flatnonzero(lengths).tolist()),
        statistics=_StoredStatistics(index),
        batch=_batches(file),
        sort_order=file.sort_order,
        file_id=file.file_id,
    )


def _batches(file: FermionFile) -> BatchRange | None:
    if not file.index.footer.is_batch:
        return None
    ids, _ = file.batches()
    if not len(ids):
        return None
    is_sorted = bool((np.diff(ids) >= 0).all())
    return BatchRange(int(ids.min()), int(ids.max()), len(ids), is_sorted)


class _StoredStatistics(Mapping[tuple[str, ...], ColumnStatistics]):
    """Statistics of the leaves of a file that are reached through structs alone, by path."""

    def __init__(self, index: FileIndex) -> None:
        self._index = index

    def __getitem__(self, path: tuple[str, ...]) -> ColumnStatistics:
        index = self._index
        ordinal = index.find(path[0])
        node = index.node(ordinal)
        for name in path[1:]:
            node = next(child for child in node.children if child.name == name)
        (block,) = index.blocks([ordinal])
        if block is None:
            raise KeyError(path)
        rows = index.stripe_rows.tolist()
        return merge_columns(
            [stored_statistics(block, node, stripe, count) for stripe, count in enumerate(rows)]
        )

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return ((name,) for name in self._index.all_names)

    def __len__(self) -> int:
        return len(self._index.all_names)
