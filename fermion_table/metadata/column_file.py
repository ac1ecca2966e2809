"""Column files: files with some columns of a data file's rows, beside the data file.

A column file has exactly the rows of its data file, deleted ones included, in the same order. A
field that several files of an entry have counts as the last of them has it, and is hidden in the
others; the data file comes first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import msgspec

from fermion.arguments import first_repeated
from fermion_table.errors import CorruptMetadata
from fermion_table.schema.schema import Field, TableSchema
from fermion_table.storage.json_codec import Natural

Runs = tuple[tuple[int, int], ...]
"""Field ids as runs (first, last), both inclusive."""
COLUMN_FILES_LIMIT = 1_000
"""Column files of an entry, at most; compaction rewrites data files long before."""
Layout = tuple[tuple[int, Runs], ...]
"""Of the column files of an entry, in their order: the schema, and the fields."""


class ColumnFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Columns of the rows of a data file, in a file of their own.

    Attributes
    ----------
    path, external_path, size, rows, tail_length, schema_id, file_id
        As of an `Entry`; as many rows as the entry has.
    fields
        Runs of ids of the top-level fields that the file has, (first, last), both inclusive.
    """

    path: str = ""
    external_path: str | None = None
    size: Natural
    rows: Natural
    tail_length: Natural = 0
    schema_id: Natural = 0
    fields: tuple[tuple[Natural, Natural], ...]
    file_id: str | None = None

    @property
    def file(self) -> str:
        """What identifies the file: its path, or a clone's external path."""
        return self.external_path or self.path


def is_in(runs: Runs, field_id: int) -> bool:
    """Whether runs of field ids have one."""
    return any(first <= field_id <= last for first, last in runs)


def ids_in(runs: Runs, field_ids: Iterable[int]) -> set[int]:
    """Those of many field ids that runs have, which may be in any order, and overlap."""
    ordered = sorted(runs)
    firsts = [first for first, _ in ordered]
    lasts = [-1, *accumulate((last for _, last in ordered), max)]
    return {each for each in field_ids if lasts[bisect_right(firsts, each)] >= each}


def layout_of(files: Iterable[ColumnFile]) -> Layout:
    """What the column files of an entry have in common with those of entries like it."""
    return tuple((file.schema_id, file.fields) for file in files)


def schema_holding(schema_id: int, layout: Layout, field_id: int) -> int:
    """The schema version under which an entry's top-level field is stored.

    Parameters
    ----------
    schema_id
        Of the data file.
    layout
        Of its column files.
    """
    for version, fields in reversed(layout):
        if is_in(fields, field_id):
            return version
    return schema_id


def problem_beside(
    rows: int, bucket: int | None, files: Sequence[ColumnFile]
) -> tuple[str, str] | None:
    """What is wrong with the column files of an entry: expected, found; None if nothing is.

    Parameters
    ----------
    rows, bucket
        Of the data file.
    """
    if bucket is not None:
        return "no column files in a primary-key table", f"{len(files)}"
    if len(files) > COLUMN_FILES_LIMIT:
        return f"at most {COLUMN_FILES_LIMIT} column files", f"{len(files)}"
    for each in files:
        if each.rows != rows:
            return f"column files of {rows} rows", f"{each.file} of {each.rows} rows"
    repeated = first_repeated(each.file for each in files)
    if repeated is not None:
        return "column files with different paths", f"{repeated} more than once"
    return None


def check_layouts(
    layouts: Iterable[Layout], schemas: Mapping[int, TableSchema], where: str
) -> None:
    """Refuse column files of fields that the schema they were written with does not have.

    Parameters
    ----------
    where
        The table, for the message.

    Raises
    ------
    CorruptMetadata
    """
    for schema_id, fields in {part for layout in layouts for part in layout}:
        known = schemas[schema_id].by_id
        found = None if fields else "a column file without fields"
        for first, last in fields:
            if last < first:
                found = f"fields from id {first} to {last}"
        wrong = next((each for each in _ids(fields, len(known)) if each not in known), None)
        if wrong is not None:
            found = f"a field with id {wrong}"
        if found is not None:
            expected = f"column files of fields of schema {schema_id}"
            raise CorruptMetadata(where, expected, found)


def _ids(runs: Runs, limit: int) -> Iterator[int]:
    """The first ids of runs, one more than there can be."""
    left = limit + 1
    for first, last in runs:
        for each in range(first, min(last + 1, first + left)):
            left -= 1
            yield each


def fields_by_file(
    file_fields: Mapping[int, tuple[Field, ...]], schema_id: int, layout: Layout
) -> list[list[Field]]:
    """The top-level fields that count of the data file, and of each column file.

    Parameters
    ----------
    file_fields
        Fields of each schema version, all or some.
    schema_id, layout
        As of `schema_holding`.
    """
    found: list[list[Field]] = []
    hidden: set[int] = set()
    for version, fields in reversed(layout):
        ids = ids_in(fields, (each.id for each in file_fields[version]))
        shown = ids - hidden
        found.append([each for each in file_fields[version] if each.id in shown])
        hidden |= ids
    return [[each for each in file_fields[schema_id] if each.id not in hidden], *found[::-1]]
