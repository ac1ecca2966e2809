"""Changes of types and settings after which a table could not be read or written are refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import FermionError, InvalidArgumentError
from fermion_table import CommitConflict, Table, TableSchema
from fermion_table.schema.transforms import PartitionTransform, TransformKind

FAR = datetime(9999, 12, 31)
NEAR = datetime(2024, 1, 2)


def created(path: Path, dtype: pa.DataType, **options: Any) -> Table:
    schema = pa.schema([("x", dtype), ("y", pa.int32())])
    return Table.create(path / "t", schema, durability="fast", **options)


def refused(table: Table, call: Callable[[], Any], match: str) -> None:
    """The call fails, the latest snapshot stays, and the table can be read and written."""
    before = Table.open(table.location).snapshot
    with pytest.raises((FermionError, TypeError), match=match):
        call()
    opened = Table.open(table.location)
    assert opened.snapshot == before
    opened.scan().to_arrow()
    opened.append({"y": [1]} if opened.schema.by_name["x"].nullable else {"x": [1]})


@pytest.mark.parametrize("transform", ["bucket(4, x)", "truncate(10, x)"])
def test_a_partition_column_gets_no_type_that_its_transform_is_not_made_for(
    tmp_path: Path, transform: str
) -> None:
    """A float has no bucket, and is not cut off."""
    table = created(tmp_path, pa.int32(), partition_by=transform)
    table.append({"x": [1, 2]})
    refused(table, lambda: table.alter_column("x", type=pa.float64()), "can't change .*double")
    table.refresh()
    table.alter_column("x", type=pa.int64())
    assert sorted(table.scan(filter="x > 1").to_arrow()["x"].to_pylist()) == [2]


SAMPLES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, -1, 0, 127],
    pa.int32(): [-(2**31), -7, 0, 9, 2**31 - 1],
    pa.uint8(): [0, 255],
    pa.uint32(): [0, 2**32 - 1],
    pa.decimal128(3, 0): [Decimal(-999), Decimal(-7), Decimal(999)],
    pa.decimal128(5, 2): [Decimal("-9.99"), Decimal("0.07"), Decimal("999.99")],
    pa.string(): ["", "ab", "\u00e4\u00f6\u00fc\u00df-long"],
    pa.binary(): [b"", b"abc", b"\xff" * 9],
    pa.float32(): [0.5, -1.25],
    pa.date32(): [NEAR.date(), FAR.date()],
    pa.timestamp("s"): [NEAR, FAR],
}
TARGETS = [
    pa.int16(), pa.int32(), pa.int64(), pa.uint64(), pa.float64(), pa.decimal128(9, 0),
    pa.decimal128(10, 2), pa.decimal128(20, 4), pa.large_string(), pa.string_view(),
    pa.large_binary(), pa.date64(), pa.timestamp("us"),
]  # fmt: skip
KINDS: list[tuple[TransformKind, int]] = [
    ("identity", 0), ("bucket", 7), ("truncate", 10), ("day", 0),
]  # fmt: skip


@pytest.mark.parametrize("old", SAMPLES, ids=str)
def test_a_partition_column_whose_type_changes_keeps_every_partition_value(
    tmp_path: Path, old: pa.DataType
) -> None:
    """Every change that is accepted, of every transform, over samples."""
    values = pa.array([pa.scalar(each, old) for each in SAMPLES[old]], old)
    for kind, parameter in KINDS:
        transform = PartitionTransform("x", kind, parameter)
        folder = tmp_path / kind
        try:
            table = created(folder, old, partition_by=transform)
        except InvalidArgumentError:
            continue  # not made for the old type either
        for new in TARGETS:
            try:
                with table.update_schema() as update:
                    update.alter_column("x", type=new)
                    raise_after(update.schema)
            except FermionError:
                continue
            except Accepted:
                before = transform.values(values).to_pylist()
                assert transform.values(values.cast(new)).to_pylist() == before, (kind, new)


class Accepted(Exception):
    """Ends a block that would publish."""


def raise_after(schema: TableSchema) -> None:
    raise Accepted


def test_a_unit_that_live_values_do_not_fit_is_refused(tmp_path: Path) -> None:
    """Year 9999 in nanoseconds; the table stays readable. Without the row it is accepted."""
    table = created(tmp_path, pa.timestamp("us"))
    table.append({"x": [NEAR, FAR]})
    refused(table, lambda: table.alter_column("x", type=pa.timestamp("ns")), "'x' can't change")
    table.refresh()
    table.delete("y IS NULL AND x > TIMESTAMP '2300-01-01 00:00:00'")
    table.alter_column("x", type=pa.timestamp("ns"))
    found = Table.open(table.location).scan().to_arrow()["x"].drop_null()
    assert found.cast(pa.timestamp("us")).to_pylist() == [NEAR]


@pytest.mark.parametrize(
    ("old", "new", "fits", "exceeds"),
    [
        (pa.date32(), pa.timestamp("ns"), 19_000, 2_932_896),
        (pa.date32(), pa.timestamp("us"), 2_932_896, 2**31 - 1),
        (pa.date64(), pa.timestamp("ns"), 86_400_000, 2_932_896 * 86_400_000),
        (pa.duration("s"), pa.duration("ns"), 10, 2**62),
        (pa.timestamp("s", "UTC"), pa.timestamp("ms", "UTC"), 10**12, 2**62),
        (pa.timestamp("s"), pa.timestamp("ns"), -(10**9), -(2**60)),
    ],
    ids=str,
)
def test_every_unit_is_checked_against_the_rows(
    tmp_path: Path, old: pa.DataType, new: pa.DataType, fits: int, exceeds: int
) -> None:
    storage = pa.int32() if pa.types.is_date32(old) else pa.int64()
    table = created(tmp_path, old)
    table.append(pa.table({"x": pa.array([fits, None], storage).cast(old)}))
    bad = pa.table({"x": pa.array([exceeds], storage).cast(old)})
    table.append(bad)
    refused(table, lambda: table.alter_column("x", type=new), "'x' can't change")
    table.restore(1)
    table.alter_column("x", type=new)
    assert table.scan().to_arrow()["x"].drop_null().type == new
    with pytest.raises(FermionError, match="'x'"):
        table.append(bad)
    Table.open(table.location).scan().to_arrow()


def test_values_inside_of_structs_are_checked_and_inside_of_lists_refused(tmp_path: Path) -> None:
    """Of a list nothing but a table without rows proves that it fits."""
    inner, wide = pa.struct([("t", pa.timestamp("s"))]), pa.struct([("t", pa.timestamp("ns"))])
    table = created(tmp_path / "struct", inner)
    table.append({"x": [{"t": NEAR}]})
    table.append({"x": [{"t": FAR}]})
    refused(table, lambda: table.alter_column("x", type=wide), "'x.t' can't change")
    table.restore(1)
    table.alter_column("x", type=wide)
    assert Table.open(table.location).scan().count() == 1
    listed, finer = pa.list_(pa.timestamp("s")), pa.list_(pa.timestamp("ns"))
    table = created(tmp_path / "list", listed)
    table.append({"x": [[NEAR]]})
    refused(table, lambda: table.alter_column("x", type=finer), "can't change")
    table = created(tmp_path / "empty", listed)
    table.alter_column("x", type=finer)


def test_files_written_before_a_unit_became_finer_are_refused_unless_they_fit(
    tmp_path: Path,
) -> None:
    """Messages of writers that began under the old type; the table stays readable."""
    table = created(tmp_path, pa.timestamp("us"))
    table.append({"x": [NEAR]})
    with table.writer() as writer:
        writer.write({"x": [NEAR]})
        good = writer.prepare_commit()
    with table.writer() as writer:
        writer.write({"x": [FAR]})
        bad = writer.prepare_commit()
    table.alter_column("x", type=pa.timestamp("ns"))
    with pytest.raises(CommitConflict, match="'x' is timestamp"):
        table.commit(bad)
    table.commit(good)
    assert Table.open(table.location).scan().to_arrow().num_rows == 2


def test_a_default_that_does_not_fit_the_new_type_is_refused(tmp_path: Path) -> None:
    table = created(tmp_path, pa.int32())
    with table.update_schema() as update:
        update.add_column("t", pa.timestamp("us"), default=FAR)
    refused(table, lambda: table.alter_column("t", type=pa.timestamp("ns")), "default|range")


SETTINGS = {
    "target_file_size": ["banana", "0", "-1", ""],
    "write_buffer_size": ["many"],
    "file.profile": ["fastest", ""],
    "file.profiel": ["compact"],
    "fermion.anything": ["1"],
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_no_writer_could_read_is_refused(tmp_path: Path, name: str) -> None:
    """When it is set and when the table is created; names of others are the user's."""
    table = created(tmp_path, pa.int32())
    for value in SETTINGS[name]:
        refused(table, lambda value=value: table.set_properties({name: value}), name)
        table.refresh()
        with pytest.raises(InvalidArgumentError, match=name):
            created(tmp_path / "other", pa.int32(), properties={name: value})
    table.set_properties({"target_file_size": "1MB", "file.profile": "compact", "team.owner": "me"})
    table.append({"x": [1]})
    assert Table.open(table.location).properties["team.owner"] == "me"


def test_a_default_of_a_column_that_is_not_added_is_refused(tmp_path: Path) -> None:
    table = created(tmp_path, pa.int32())
    refused(
        table,
        lambda: table.add_columns({"a": pa.int64()}, defaults={"typo": 1}),
        "no column 'typo'",
    )
    refused(table, lambda: table.add_columns({"a": pa.int64()}, defaults=5), "defaults")
    table.refresh()
    table.add_columns({"a": pa.int64()}, defaults={"a": 1})
    assert table.refresh().time_ms > datetime(2020, 1, 1, tzinfo=UTC).timestamp()


def test_properties_of_all_tables_are_taken_by_tables_with_a_primary_key(tmp_path: Path) -> None:
    """Those with a dot were refused as unknown settings of the key."""
    given = {"consumer.expiration_time": "1 d", "index.rows_min": "5"}
    table = Table.create(
        tmp_path / "t", pa.schema([("k", pa.int64())]), primary_key="k", properties=given
    )
    assert given.items() <= table.properties.items()
