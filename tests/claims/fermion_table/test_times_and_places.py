"""Times, names and places that a table is asked for: unambiguous ones work, others are told."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fermion
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import (
    Catalog,
    MissingDataFile,
    Table,
    TableError,
    TableExists,
    TableNotFound,
    UnsafeStorage,
    VersionNotFound,
    drop_table,
)
from fermion_table.commit import next_snapshot
from fermion_table.moments import moment_of
from fermion_table.storage.cache import shared_cache

SCHEMA = pa.schema({"a": pa.int64()})
AT_ONCE = datetime.timedelta(days=-1)
TOMORROW = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
EAST = datetime.timezone(datetime.timedelta(hours=9))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    for value in (1, 2, 3):
        made.append({"a": [value]})
    return made


LATER: list[Any] = [
    TOMORROW,
    TOMORROW.replace(tzinfo=None),
    TOMORROW.astimezone(EAST),
    TOMORROW.date() + datetime.timedelta(days=1),
    TOMORROW.isoformat(),
    np.datetime64(TOMORROW.replace(tzinfo=None)),
    np.datetime64(TOMORROW.replace(tzinfo=None), "ns"),
    np.datetime64("2200-01-01"),
    np.datetime64("2200"),
    pd.Timestamp(TOMORROW),
    pd.Timestamp(TOMORROW.replace(tzinfo=None)),
]


@pytest.mark.parametrize("moment", LATER, ids=lambda moment: type(moment).__name__)
def test_every_unambiguous_time_is_taken(table: Table, moment: Any) -> None:
    assert table.scan(as_of=moment).count() == 3
    assert Table.open(table.location, version=moment).snapshot.id == 3


def test_a_date_is_its_start_and_what_has_no_zone_is_utc(table: Table) -> None:
    """Six spellings of one midnight."""
    midnight = datetime.datetime(2020, 5, 2, tzinfo=datetime.UTC)
    for moment in (
        datetime.date(2020, 5, 2),
        np.datetime64("2020-05-02"),
        pd.Timestamp("2020-05-02"),
        datetime.datetime(2020, 5, 2),
        datetime.datetime(2020, 5, 2, 9, tzinfo=EAST),
        "2020-05-02",
    ):
        assert moment_of(moment, "as_of") == midnight


@pytest.mark.parametrize(
    "moment",
    [0, 1_800_000_000_000, 1.5, np.int64(7), np.float64(7), True, b"2020", [], pa.scalar(1)],
)
def test_numbers_and_other_types_are_no_times(table: Table, moment: Any) -> None:
    with pytest.raises(TypeError, match=r"as_of=.*expected a datetime, a date"):
        table.scan(as_of=moment)


@pytest.mark.parametrize("moment", [pd.NaT, np.datetime64("NaT"), np.datetime64(10**10, "Y")])
def test_times_that_are_none_are_refused(table: Table, moment: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="as_of="):
        table.scan(as_of=moment)


@pytest.mark.parametrize("version", [1.0, True, b"v1", [], np.float64(1), np.bool_(True)])
def test_a_version_of_another_type_is_refused(table: Table, version: Any) -> None:
    with pytest.raises(TypeError, match="version="):
        Table.open(table.location, version=version)
    assert Table.open(table.location, version=np.int64(2)).scan().count() == 2


@pytest.mark.parametrize("limit", [7, 7.0, np.int64(7), True, b"", np.timedelta64(7)])
@pytest.mark.parametrize("way", ["expire_snapshots", "remove_orphan_files"])
def test_bug_a_number_of_days_expired_nothing_without_a_word(
    table: Table, way: str, limit: Any
) -> None:
    """7 was taken for milliseconds since 1970."""
    before = [item.path for item in table.store.list()]
    with pytest.raises(TypeError, match=r"older_than=.*expected a datetime or a timedelta"):
        getattr(table, way)(older_than=limit)
    with pytest.raises(InvalidArgumentError, match="older_than=NaT"):
        getattr(table, way)(older_than=pd.NaT)
    assert [item.path for item in table.store.list()] == before


@pytest.mark.parametrize("limit", [datetime.timedelta(days=-1), pd.Timedelta(days=-1), TOMORROW])
def test_ages_and_times_limit_an_expiry(table: Table, limit: Any) -> None:
    assert table.expire_snapshots(older_than=limit, retain_last=np.int64(1)).snapshots == 2


@pytest.mark.parametrize("count", [1.0, "1", True, []])
def test_how_many_snapshots_stay_is_an_integer_from_one_on(table: Table, count: Any) -> None:
    with pytest.raises(TypeError, match="retain_last="):
        table.expire_snapshots(older_than=AT_ONCE, retain_last=count)
    for wrong in (0, -1):
        with pytest.raises(InvalidArgumentError, match="retain_last="):
            table.expire_snapshots(older_than=AT_ONCE, retain_last=wrong)
    assert table.verify().snapshots == 4


def test_a_scheme_that_nobody_knows_is_told(tmp_path: Path) -> None:
    for call in (Table.open, Table.exists, lambda where: Table.create(where, SCHEMA)):
        with pytest.raises(UnsafeStorage, match="foo://bucket/t: no storage is known"):
            call("foo://bucket/t")


def test_a_file_where_a_table_is_meant_is_told(tmp_path: Path, table: Table) -> None:
    """Also below a file; nothing of it changes."""
    file = tmp_path / "rows.parquet"
    file.write_bytes(b"PAR1")
    with pytest.raises(TableNotFound, match=r"rows\.parquet: no table here \(this is a file\)"):
        Table.open(file)
    assert not Table.exists(file)
    for make in (lambda: Table.create(file, SCHEMA), lambda: table.clone(file)):
        with pytest.raises(TableExists, match="found a file"):
            make()
    with pytest.raises(TableNotFound, match="no snapshot"):
        Table.open(file / "below")
    assert file.read_bytes() == b"PAR1"


def test_a_missing_tag_or_branch_is_told_with_the_closest_names(table: Table) -> None:
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("tag", lambda: table.scan(tag="realease-1")),
        ("tag", lambda: table.tags.delete("realease-1")),
        ("branch", lambda: table.scan(branch="realease-1")),
        ("branch", lambda: table.branches.delete("realease-1")),
        ("branch", lambda: table.branches.fast_forward("realease-1")),
        ("branch", lambda: Table.open(table.location, branch="realease-1")),
        ("version", lambda: Table.open(table.location, version="realease-1")),
        ("version", lambda: table.diff("realease-1")),
    ]
    with pytest.raises(VersionNotFound, match="no tag 'x'; there are no tags"):
        table.scan(tag="x")
    table.tags.create("release-1")
    table.branches.create("release-12")
    for what, call in calls:
        with pytest.raises(VersionNotFound, match=f"no {what} 'realease-1'") as caught:
            call()
        said = str(caught.value)
        assert ("'release-1'" in said) == (what != "branch")
        assert ("'release-12'" in said) == (what != "tag")


def expire_all(table: Table) -> None:
    """The first files go, with their snapshots; a compaction has made another of them."""
    table.compact()
    assert table.expire_snapshots(older_than=AT_ONCE, retain_last=1).files > 0
    shared_cache.clear()


READS: dict[str, Callable[[Any], Any]] = {
    "to_arrow": lambda scan: scan.to_arrow(),
    "to_batches": lambda scan: list(scan.to_batches()),
    "to_reader": lambda scan: scan.to_reader().read_all(),
    "count": lambda scan: scan.where("a > 4").count(),
    "min_max": lambda scan: scan.where("a > 4").min_max("a"),
    "head": lambda scan: scan.head(2),
    "explain": lambda scan: scan.explain(files=1),
}


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("manifests", [False, True])
@pytest.mark.parametrize("read", READS)
def test_a_reader_overtaken_by_expiry_is_told_so(
    table: Table, read: str, manifests: bool, planned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the earliest and the latest id, wherever it was when the files went."""
    if manifests:
        monkeypatch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", 1)
    table.append({"a": [4, 6]})  # metadata alone does not say how many are above 4
    scan = table.scan()
    if planned:
        scan.plan()
    old = table.snapshot.id
    expire_all(Table.open(table.location))
    told = (
        rf"no snapshot {old} any more \(it has expired\); earliest {old + 1} .* latest {old + 1} "
    )
    with pytest.raises(VersionNotFound, match=told):
        READS[read](scan)
    assert Table.open(table.location).scan().count() == 5


def test_changes_overtaken_by_expiry_are_told_so(table: Table) -> None:
    changes = table.scan_changes(1)
    expire_all(Table.open(table.location))
    with pytest.raises(VersionNotFound, match="has expired"):
        changes.to_arrow()


def test_a_file_that_is_missing_without_an_expiry_is_no_expiry(table: Table) -> None:
    """Neither of a snapshot that is there nor of one that a tag keeps."""
    table.tags.create("keep")
    scan = table.scan()
    for path in Path(table.location).rglob("*.fermion"):
        path.unlink()
    with pytest.raises(FileNotFoundError):
        scan.to_arrow()
    table.append({"a": [9]})
    table.append({"a": [9]})
    table.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    with pytest.raises(FileNotFoundError):
        scan.to_arrow()


def test_a_missing_data_file_is_named_with_its_snapshot(table: Table) -> None:
    table.update("a = 3", {"a": 4})
    scan = table.scan()
    for path in Path(table.location).rglob("data/*.fermion"):
        path.unlink()
    match = rf"{table.location}: snapshot 4 of branch 'main' names a file .*data/\w+\.fermion"
    for read in (scan.to_arrow, scan.head, lambda: list(scan.to_batches()), scan.to_pandas):
        with pytest.raises(MissingDataFile, match=match):
            read()
    with pytest.raises(MissingDataFile, match=match):
        table.update("a = 1", {"a": 5})
    assert {FileNotFoundError, TableError} <= set(MissingDataFile.__mro__)


def test_a_tilde_is_the_home_directory_wherever_a_local_path_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    rows = pa.table({"a": [1]})
    table = Table.create("~/t", rows)
    assert table.location == str(home / "t")
    for path in ("~/t", Path("~/t"), "file://" + str(home / "t")):
        assert Table.exists(path)
        assert Table.open(path).scan().count() == 1
    table.clone("~/clone")
    catalog = Catalog.open("~/warehouse")
    catalog.create_table("db.t", SCHEMA)
    catalog.register_table("db.other", "~/t")
    assert catalog.table("db.other").location == str(home / "t")
    fermion.write_table(rows, "~/a.fermion")
    fermion.to_parquet("~/a.fermion", "~/a.parquet")
    fermion.from_parquet("~/a.parquet", "~/b.fermion")
    assert fermion.read_table(Path("~/b.fermion")) == rows
    with fermion.open("~/b.fermion", options=fermion.ReadOptions(memory_map=True)) as file:
        assert file.count() == 1
    drop_table("~/clone")
    assert list(work.iterdir()) == [], "nothing beside the home directory"
    assert {path.name for path in home.iterdir()} == {
        *("t", "warehouse", "a.fermion", "a.parquet", "b.fermion")
    }
    fermion.write_table(rows, "./~b")
    assert (work / "~b").exists()


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.scan(filter="Name > 'a'"),
        lambda t: t.scan(columns=["Name"]),
        lambda t: t.delete("NAME = 'x'"),
        lambda t: t.scan(filter=fermion.col("naMe") == "x"),
    ],
)
def test_a_column_that_differs_by_case_is_said_to(
    tmp_path: Path, read: Callable[[Table], Any]
) -> None:
    table = Table.create(tmp_path / "names", {"id": [1], "name": ["x"]})
    with pytest.raises(ColumnNotFoundError, match="names are case-sensitive: write 'name'"):
        read(table)


@pytest.mark.parametrize("age", ["0s", "0.5s", " 0 D ", "0w", "0m", "0h"])
def test_an_age_is_text_as_on_the_command_line(table: Table, age: str) -> None:
    time.sleep(0.6 if age == "0.5s" else 0)
    asked = {"retain_last": 1, "dry_run": True}
    expired = table.expire_snapshots(older_than=datetime.timedelta(0), **asked).snapshots
    assert table.expire_snapshots(older_than=age, **asked).snapshots == expired > 0
    assert table.expire_snapshots(older_than="7d", **asked).snapshots == 0
    table.remove_orphan_files(older_than=age, dry_run=True)
    tag = table.tags.create("kept", keep="30d")
    assert tag.expires_ms is not None
    assert tag.expires_ms - tag.created_ms == 30 * 24 * 3600 * 1000


@pytest.mark.parametrize("wrong", ["soon", "7", "-7d", "7 fortnights", "9999999999d", ""])
def test_text_that_is_no_age_is_refused(table: Table, wrong: str) -> None:
    for refused in (
        lambda: table.expire_snapshots(older_than=wrong),
        lambda: table.remove_orphan_files(older_than=wrong),
        lambda: table.tags.create("kept", keep=wrong),
    ):
        with pytest.raises(InvalidArgumentError, match="expected an age"):
            refused()
    with pytest.raises(InvalidArgumentError, match=r"keep='2026-01-31': expected an age"):
        table.tags.create("kept", keep="2026-01-31")
    assert table.tags.list() == []
