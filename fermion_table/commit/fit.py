"""Whether data files written with one schema version can live under another one, and as what."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

import msgspec
import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.errors import CommitConflict
from fermion_table.keys.key_changes import (
    bucket_setting,
    check_key_change,
    key_options,
    newly_required,
    undecided_defaults,
)
from fermion_table.metadata.manifest import Entry, field_id_runs
from fermion_table.schema.field_widening import narrowed, ranges_lost
from fermion_table.schema.key_options import made_null
from fermion_table.schema.schema import Field, TableSchema, has_buckets
from fermion_table.schema.selection import BATCH_NAMES


def misfit(written: TableSchema, schema: TableSchema, entries: Sequence[Entry]) -> str | None:
    """Why files written with one version can't live under a later one; None if they can."""
    if written.partition_by != schema.partition_by:
        return "the table is partitioned otherwise now"
    reason = _other_key(written, schema, entries)
    if reason is not None:
        return reason
    replaced = _replaced_field(written, schema)
    if replaced is not None:
        return f"column {replaced!r} was dropped, and another one of its name was added"
    if not {each.id for each in written.fields}.intersection(each.id for each in schema.fields):
        return "none of its columns is left"
    virtual = [name for name in BATCH_NAMES if name in schema.by_name]
    if virtual and any(entry.batch is not None for entry in entries):
        return (
            f"column {virtual[0]!r} has the name of a virtual column of batches now, and the new "
            "files hold batches"
        )
    for path, before, now in narrowed(written.fields, schema.fields):
        if not all(entry.is_all_null(before.id) for entry in entries):
            return (
                f"column {'.'.join(path)!r} is {now.type} now, and the new files hold {before.type}"
            )
    for path, before, now in ranges_lost(written.fields, schema.fields):
        if not all(_fits(entry, before, now.type) for entry in entries):
            return (
                f"column {'.'.join(path)!r} is {now.type} now, and the new files may hold values "
                "out of its range"
            )
    nullable = {each.id: each.nullable for top in written.fields for _, each in top.walk()}
    for top in schema.fields:
        for path, each in top.walk():
            if each.nullable:
                continue
            name = ".".join(path)
            if each.id not in nullable:
                if len(path) == 1 and each.stored_initial_default is None:
                    return f"column {name!r} was added as NOT NULL without a default"
            elif nullable[each.id] and not all(entry.has_no_null(each.id) for entry in entries):
                return f"column {name!r} is NOT NULL now, and the new files may hold nulls"
    return None


def _other_key(written: TableSchema, schema: TableSchema, entries: Sequence[Entry]) -> str | None:
    """Why the rows of files are in other trees now, or merged otherwise; None if they are not."""
    if has_buckets(written) != has_buckets(schema):
        return "its rows are merged by a primary key now, and were not, or the other way round"
    if not has_buckets(schema):
        return None
    if written.primary_key != schema.primary_key:
        return "the table has another primary key now"
    try:
        check_key_change(written, schema, has_rows=True)
    except InvalidArgumentError as error:
        return str(error)
    emptied = made_null(key_options(schema).functions)
    for field in newly_required(written, schema):
        if field.name in emptied and any(entry.retractions for entry in entries):
            return f"column {field.name!r} is NOT NULL now, and {emptied[field.name]}"
    undecided = undecided_defaults(written, schema)
    if undecided and any(entry.retractions for entry in entries):
        return (
            f"column {undecided[0]!r} was added with a default, and the new files take values back "
            "without saying which of this column"
        )
    known = {bucket_setting(schema), *schema.bucket_counts}
    for entry in entries:
        count = entry.total_buckets or bucket_setting(written)
        if count not in known:
            return f"the table's partitions have {sorted(known)} buckets now, the new files {count}"
    return None


def _replaced_field(written: TableSchema, schema: TableSchema) -> str | None:
    """A field that is gone, and whose name another one has now at the same place; None without.

    Identity is the field id: values written for one would not be values of the other.
    """
    ids = {each.id for top in schema.fields for _, each in top.walk()}
    new: dict[tuple[int, str], int] = {}
    for parent, each in _with_parents(schema):
        new[parent, each.name] = each.id
    for parent, each in _with_parents(written):
        if each.id not in ids and (parent, each.name) in new:
            return ".".join(written.paths[each.id])
    return None


def _with_parents(schema: TableSchema) -> Iterator[tuple[int, Field]]:
    """Every field with the id of the one above it; 0 for columns."""
    rest = [(0, each) for each in schema.fields]
    while rest:
        parent, each = rest.pop()
        yield parent, each
        rest += [(each.id, child) for child in each.children]


def _fits(entry: Entry, field: Field, dtype: pa.DataType) -> bool:
    """Whether the bounds of a file prove that a type can hold all values of a field."""
    if entry.is_all_null(field.id):
        return True
    statistics = entry.stats.get(field.id)
    if statistics is None or statistics.min is None or statistics.max is None:
        return False
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    target = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    try:
        bounds = pa.array([statistics.min, statistics.max], pa.int64())
        if pa.types.is_date32(plain):
            bounds = bounds.cast(pa.int32())
        bounds.cast(plain).cast(target)
    except pa.ArrowException:
        return False
    return True


def restated(
    written: TableSchema,
    schema: TableSchema,
    entries: Sequence[Entry],
    *,
    last_known_id: int,
    where: str,
) -> list[Entry]:
    """Entries of files written with one version, as if written with another.

    Another commit took the version that the files were written with. Files are read by the names
    that their schema version gives to ids: equal names and types are needed, and equal ids of
    the fields that were there before; those that the files add get the other version's ids.

    last_known_id: The greatest field id of the version that both were made from.
    Raises CommitConflict: A column of the files is not in the other version, or is another one or
        of another type there; or the other version has a column with a default that the files lack.
    """
    try:
        ids = _other_ids(written.fields, schema, last_known_id)
        _check_defaults(written.by_name, schema)
    except _NotTheSame as error:
        raise CommitConflict(
            f"{where}: append: {error} by another commit; write the rows again",
            mine="append",
            theirs=f"schema {schema.id}",
        ) from None
    present = [top.id for top in written.fields]
    is_keyed = has_buckets(written) and bucket_setting(written) != bucket_setting(schema)
    count = bucket_setting(written) if is_keyed else None
    return [
        msgspec.structs.replace(
            entry,
            schema_id=schema.id,
            total_buckets=entry.total_buckets or count,
            columns=field_id_runs(ids[each] for each in entry.with_data(present)),
            # Keys of maps may have other ids there: without their statistics scans only read more.
            stats={ids[each]: found for each, found in entry.stats.items() if each in ids},
        )
        for entry in entries
    ]


class _NotTheSame(Exception):
    """What has become of a column, in words."""


def _other_ids(tops: Sequence[Field], schema: TableSchema, last_known_id: int) -> dict[int, int]:
    """The ids of fields of files, and those of the same names in another schema."""
    ids: dict[int, int] = {}
    for top in tops:
        match = schema.by_name.get(top.name)
        pairs: list[tuple[int, int]] = []
        if match is not None and match.type.equals(top.type):
            both = zip(top.walk(), match.walk(), strict=True)
            pairs = [(mine.id, theirs.id) for (_, mine), (_, theirs) in both]
        if not pairs or any(mine != theirs and mine <= last_known_id for mine, theirs in pairs):
            raise _NotTheSame(f"column {top.name!r} was changed")
        ids.update(pairs)
    return ids


def _check_defaults(names: Container[str], schema: TableSchema) -> None:
    """Refuse a schema with a column that files lack, and that has a default: they hold none."""
    for top in schema.fields:
        if top.name not in names and top.stored_initial_default is not None:
            raise _NotTheSame(f"column {top.name!r}, which has a default, was added")
