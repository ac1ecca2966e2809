"""What a finished data file becomes in the manifest: its entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fermion
from fermion_table.metadata.manifest import (
    BatchRange,
    Entry,
    FieldStatistics,
    Source,
    field_id_runs,
)
from fermion_table.schema.properties import STATISTICS_COLUMNS_MAX
from fermion_table.schema.schema import Field, Path, TableSchema


class EntryMaker:
    """Makes the entries of files that are written under one schema.

    Parameters
    ----------
    schema
        The table's.
    statistics_columns
        Columns whose statistics are kept beyond the usual ones: names or dotted paths.
    """

    def __init__(self, schema: TableSchema, statistics_columns: Sequence[str] = ()) -> None:
        self._schema = schema
        self._fields = statistics_fields(schema, statistics_columns)

    def entry(
        self,
        info: fermion.FileInfo,
        path: str,
        *,
        partition: tuple[Any, ...] = (),
        source: Source = "append",
        created_ms: int = 0,
    ) -> Entry:
        """The entry of a file.

        Parameters
        ----------
        info
            What the file's writer gave back. Columns after those of the schema don't show.
        path
            The file, relative to the table.
        """
        fields = self._schema.fields
        present = [ordinal for ordinal in info.columns_with_data if ordinal < len(fields)]
        all_columns = len(present) == len(fields)
        runs = None if all_columns else field_id_runs([fields[each].id for each in present])
        batch = None
        if info.batch is not None:
            found = info.batch
            batch = BatchRange(found.min, found.max, found.count, found.sorted)
        return Entry(
            path=path,
            size=info.size,
            rows=info.num_rows,
            tail_length=info.tail_length,
            schema_id=self._schema.id,
            partition=partition,
            batch=batch,
            columns=runs,
            stats=self._statistics(info),
            source=source,
            created_ms=created_ms,
            file_id=info.file_id,
        )

    def _statistics(self, info: fermion.FileInfo) -> dict[int, FieldStatistics]:
        found = {}
        for path, field, nullable_above in self._fields:
            statistics = info.statistics.get(path)
            if statistics is None:
                continue
            has_bounds = bool(statistics.flags & fermion.ChunkFlag.HAS_MINMAX)
            # A required field inside a struct that is null is null to a filter, and not counted.
            counted = statistics.null_count >= 0 and (field.nullable or not nullable_above)
            found[field.id] = FieldStatistics(
                min=statistics.min if has_bounds else None,
                max=statistics.max if has_bounds else None,
                null_count=statistics.null_count if counted else None,
                flags=int(statistics.flags),
            )
        return found


def statistics_fields(
    schema: TableSchema, named: Sequence[str] = ()
) -> list[tuple[Path, Field, bool]]:
    """The leaves whose statistics entries keep: path, field, whether a struct above may be null.

    They are the partition, key and sort columns, those named, and the first others.
    """
    always = {each.source_id for each in schema.partition_by}
    always.update(schema.primary_key, schema.sort_by)
    wanted = {schema.resolve(name) for name in named if _exists(schema, name)}
    chosen: list[tuple[Path, Field, bool]] = []
    others = 0
    for column in schema.fields:
        for path, field, above in _scalar_leaves(column, (column.name,), False):
            if field.id not in always and path not in wanted:
                others += 1
                if others > STATISTICS_COLUMNS_MAX:
                    if not always and not wanted:
                        return chosen
                    continue
            chosen.append((path, field, above))
    return chosen


def _exists(schema: TableSchema, name: str) -> bool:
    return name in schema.by_name or name.partition(".")[0] in schema.by_name


def _scalar_leaves(field: Field, path: Path, above: bool) -> list[tuple[Path, Field, bool]]:
    if field.kind == "struct":
        below = above or field.nullable
        return [
            leaf
            for child in field.children
            for leaf in _scalar_leaves(child, (*path, child.name), below)
        ]
    return [] if field.children else [(path, field, above)]
