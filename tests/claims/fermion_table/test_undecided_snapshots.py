"""What every feature does with snapshots of transactions that are pending, or were given up."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from fermion.cli import main
from fermion.errors import InvalidArgumentError
from fermion_table import Catalog, Table
from fermion_table.checks.repair import repair_table
from fermion_table.commit import next_snapshot
from fermion_table.errors import CorruptMetadata, VersionNotFound
from fermion_table.inspection.history_map import history_map
from fermion_table.metadata.history import newest
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.location import open_store
from fermion_table.table.copying import copy_table
from tests.kit.tables.warehouses import (
    SCHEMA,
    again,
    append_both,
    give_up,
    ids,
    lease,
    rows,
    stop_before_decision,
)

NOT_YET = pytest.mark.parametrize("left", [stop_before_decision, give_up])
"""Snapshot 2 of both tables is pending, or void."""
AT_ONCE = timedelta(days=-1)

Left = Callable[..., None]


def with_gap(catalog: Catalog) -> Table:
    """Table ``a`` with the snapshots 0, 1, 4 and 5: 2 and 3 are void."""
    give_up(catalog)
    give_up(catalog)
    a = catalog.table("a")
    a.append(rows(4))
    a.append(rows(5))
    return a


@NOT_YET
def test_ids_tags_times_and_ancestors(two: Catalog, left: Left) -> None:
    before = datetime.now(UTC)
    left(two)
    a = two.table("a")
    for version in (2, "2"):
        with pytest.raises(VersionNotFound, match="snapshot 2 does not count"):
            two.table("a", version=version)
    with pytest.raises(VersionNotFound, match="does not count"):
        a.scan(snapshot_id=2)
    with pytest.raises(VersionNotFound, match="does not count"):
        a.tags.create("t", version=2)
    assert a.tags.create("t").snapshot_id == 1
    later = datetime.now(UTC) + timedelta(days=1)
    for version in ("t", "main", before, later, later.isoformat()):
        assert two.table("a", version=version).snapshot.id == 1
    assert a.scan(as_of=later).snapshot.id == 1
    assert two.table("a", version="main~1").snapshot.id == 0


def test_times_and_ancestors_pass_over_what_was_given_up(two: Catalog) -> None:
    a = with_gap(two)
    shown = [a.snapshot.time_ms, two.table("a", version=4).snapshot.time_ms]
    for time_ms, expected in zip([*shown, shown[1] - 1], [5, 4, 1], strict=True):
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
        assert two.table("a", version=at).snapshot.id == expected
    found = [two.table("a", version=f"main~{each}").snapshot.id for each in range(4)]
    assert found == [5, 4, 1, 0]
    for version in ("main~4", 2, 3):
        with pytest.raises(VersionNotFound):
            two.table("a", version=version)


@NOT_YET
def test_branches_leave_what_counts_and_are_written_without_waiting(
    two: Catalog, left: Left
) -> None:
    """A branch has snapshots of its own; its ancestors are those that count."""
    left(two)
    a = two.table("a")
    with pytest.raises(VersionNotFound, match="does not count"):
        a.branches.create("dev", version=2)
    a.branches.create("dev")
    dev = two.table("a", branch="dev")
    dev.append(rows(7))
    assert (dev.snapshot.id, ids(dev), ids(two.table("a"))) == (2, [1, 7], [1])
    assert [each.id for each in dev.snapshots()] == [0, 1, 2]
    assert two.table("a", branch="dev", version=2).snapshot.hash == dev.snapshot.hash
    assert dev.verify(data=True).ok


def test_branches_have_ancestors_before_and_after_a_gap(two: Catalog) -> None:
    a = with_gap(two)
    a.branches.create("dev")
    dev = two.table("a", branch="dev")
    dev.append(rows(7))
    assert [each.id for each in dev.snapshots()] == [0, 1, 4, 5, 6]
    assert two.table("a", version="dev~3").snapshot.id == 1
    with pytest.raises(VersionNotFound, match="snapshot 3 does not count"):
        two.table("a", branch="dev", version=3)


@NOT_YET
@pytest.mark.parametrize("publish", ["merge", "fast_forward"])
def test_branches_are_published_over_it(two: Catalog, left: Left, publish: str) -> None:
    """A pending one is waited for, and given up after the lease; then all goes on from before."""
    two.table("a").branches.create("dev")
    two.table("a", branch="dev").append(rows(7))
    left(two)
    with lease(0.05):
        getattr(two.table("a").branches, publish)("dev")
    a = again(two).table("a")
    assert (a.snapshot.id, a.snapshot.parent_void, ids(a)) == (3, True, [1, 7])
    assert a.verify(data=True).ok
    assert not newest(two.table("db.b").store).is_undecided


@NOT_YET
def test_restores_and_undo(two: Catalog, left: Left) -> None:
    """Back to what counts, over what does not; a commit that does not count can't be undone."""
    left(two)
    a = two.table("a")
    for refused in (lambda: a.restore(2), lambda: a.undo(commit=2)):
        with pytest.raises(VersionNotFound, match="does not count"):
            refused()
    with lease(0.05):
        a.restore(0)
    assert (a.snapshot.id, ids(a)) == (3, [])
    a.undo()
    assert (a.snapshot.id, ids(a)) == (4, [1])
    a = with_gap(two)
    assert a.undo(commit=a.snapshot.id - 1).parent == newest(a.store).stored.parent
    assert ids(a) == [1, 5]
    a.restore("main~2")
    assert ids(a) == [1, 4]


def test_undo_of_the_commit_after_a_gap_brings_back_the_one_before_it(two: Catalog) -> None:
    give_up(two)
    a = two.table("a")
    a.overwrite(rows(3))
    assert (a.snapshot.id, ids(a)) == (3, [3])
    a.undo()
    assert ids(a) == [1]


@NOT_YET
def test_clones_and_copies(two: Catalog, left: Left, tmp_path: Path) -> None:
    """A clone has one state; a byte-by-byte copy would need the decision, which is not copied."""
    left(two)
    a = two.table("a")
    with pytest.raises(VersionNotFound, match="does not count"):
        a.clone(tmp_path / "refused", version=2)
    clone = a.clone(tmp_path / "clone")
    clone.append(rows(9))
    assert (ids(clone), clone.snapshot.reader_features) == ([1, 9], ())
    target = open_store(str(tmp_path / "copy"))
    with pytest.raises(InvalidArgumentError, match="commit to the table once more"):
        copy_table(a.store, target)
    with lease(0.05):
        a.append(rows(3))
    copy_table(a.store, target)
    copy = Table.open(tmp_path / "copy")
    assert ([each.id for each in copy.snapshots()], ids(copy)) == ([0, 1, 3], [1, 3])
    assert copy.verify(data=True).ok


def test_retain_last_counts_snapshots_that_count(two: Catalog) -> None:
    a = with_gap(two)
    for retained, expected in ((3, [1, 4, 5]), (2, [4, 5]), (1, [5])):
        result = a.expire_snapshots(older_than=AT_ONCE, retain_last=retained)
        assert [each.id for each in a.snapshots() if each.id] == expected
        assert result.snapshots == (0 if retained == 3 else 1)
        assert ids(two.table("a")) == [1, 4, 5]
        assert a.verify(data=True).ok
    with pytest.raises(VersionNotFound):
        two.table("a", version=4)


@NOT_YET
def test_expiry_keeps_what_is_shown_and_what_may_be_committed(two: Catalog, left: Left) -> None:
    two.table("a").append(rows(8))
    two.table("db.b").append(rows(8))
    left(two)
    a = two.table("a")
    a.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    assert [each.id for each in a.snapshots()] == [2]
    assert ids(two.table("a")) == [1, 8]
    assert a.verify(data=True).ok


def test_expiry_of_changelogs_counts_snapshots_that_count(two: Catalog) -> None:
    """Those of as many commits stay: `scan_changes` tells of them."""
    kept = {"changelog.num_retained": "3"}
    properties = {"bucket": "1", "changelog_producer": "input"} | kept
    two.drop_table("a", purge=True)
    a = two.create_table("a", SCHEMA, primary_key="id", properties=properties)
    for number in (1, 2):
        a.append(rows(number))
    give_up(two)
    give_up(two)
    a.append(rows(3))
    a.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    assert [each.id for each in a.snapshots()] == [5]
    changes = again(two).table("a").scan_changes(1).to_arrow()
    assert changes["id"].to_pylist() == [2, 3]
    assert a.verify().ok


@pytest.mark.parametrize("inline", [True, False])
def test_orphans_verification_and_repair(
    two: Catalog, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a pending snapshot stay, with its manifests; those of one that was given up go."""
    if not inline:
        monkeypatch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", 0)
    stop_before_decision(two)
    a, b = two.table("a"), two.table("db.b")
    for table in (a, b):
        assert not table.remove_orphan_files(older_than=AT_ONCE).files
        assert table.verify(data=True).ok
        assert table.repair().actions == ()
        assert newest(table.store).is_undecided
    with lease(0.0):
        b.append(rows(3))
    removed = a.remove_orphan_files(older_than=AT_ONCE)
    assert (removed.files, removed.objects) == (1, 0 if inline else 1)
    assert b.remove_orphan_files(older_than=AT_ONCE).files == 1
    shared_cache.clear()
    for table in (a, b):
        assert table.verify(data=True).ok
        assert table.repair().actions == ()
    assert newest(a.store).stored.id == 2
    a.append(rows(3))
    assert (a.snapshot.id, ids(a), ids(b)) == (3, [1, 3], [1, 3])
    assert a.repair().actions == ()


def test_repair_goes_back_over_void_snapshots_to_one_that_can_be_read(two: Catalog) -> None:
    """The newest that counts is damaged, and what came after it was given up."""
    give_up(two)
    two.table("a").append(rows(3))
    give_up(two)
    directory = Path(two.location, "a")
    path = directory / "snapshot" / f"{3:020}.json"
    path.write_bytes(path.read_bytes()[:-50])
    shared_cache.clear()
    with pytest.raises(CorruptMetadata):
        two.table("a")
    repair_table(directory)
    a = two.table("a")
    assert (a.snapshot.id, ids(a)) == (1, [1])
    assert a.verify(data=True).ok
    a.append(rows(9))
    assert ids(two.table("a")) == [1, 9]


@NOT_YET
def test_histories_of_all_kinds(
    two: Catalog, left: Left, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a log, as JSON, as web pages, as metadata tables: what counts alone."""
    left(two)
    a = two.table("a")

    def check(expected: list[int]) -> None:
        assert [each["id"] for each in a.history()] == expected
        assert [each.id for each in a.snapshots()] == expected[::-1]
        snapshots = a.inspect.snapshots()
        assert snapshots["snapshot_id"].to_pylist() == expected[::-1]
        assert snapshots["parent_id"].to_pylist() == [None, *expected[:0:-1]]
        assert a.inspect.history()["snapshot_id"].to_pylist() == expected
        assert main(["table", "log", a.location]) == 0
        told = re.findall(r"^snapshot (\d+)", capsys.readouterr().out, re.MULTILINE)
        assert [int(each) for each in told] == expected
        assert main(["table", "log", "--json", a.location]) == 0
        assert [each["id"] for each in json.loads(capsys.readouterr().out)] == expected
        shown = history_map(a.store, a.snapshot, "main")
        assert shown["snapshots"]["id"] == expected[::-1]
        assert shown["snapshots"]["parent"] == list(range(-1, len(expected) - 1))
        assert not shown["table"]["is_cut"]
        assert str(a.show()).count("table.undo(commit=") == len(expected) - 1

    check([1, 0])
    with lease(0.05):
        a.append(rows(3))
    check([3, 1, 0])


@NOT_YET
def test_change_feed(two: Catalog, left: Left) -> None:
    """It ends with what counts. What was given up is as if it had never been."""
    a = two.table("a")
    a.consumers.record("follower")
    left(two)
    a.refresh()
    assert a.scan_changes(0).to_arrow()["id"].to_pylist() == [1]
    assert a.scan_changes(1).to_arrow().num_rows == 0
    if newest(a.store).is_undecided:
        with pytest.raises(VersionNotFound, match="does not count"):
            a.scan_changes(1, 2)
    with lease(0.05):
        a.append(rows(3))
    for start, end, expected in ((0, None, [1, 3]), (1, None, [3]), (2, 3, [3]), (1, 2, [])):
        assert a.scan_changes(start, end).to_arrow()["id"].to_pylist() == expected
    assert a.scan_changes(0, 2).snapshot.id == 1
    a.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    assert a.scan_changes(a.consumers.list()[0].snapshot_id).to_arrow()["id"].to_pylist() == [3]
    with pytest.raises(VersionNotFound, match="does not count"):
        a.consumers.record("other", version=2)


@NOT_YET
def test_snapshots_of_the_catalog_and_views(two: Catalog, left: Left) -> None:
    """They hold what counts, for all tables; later decisions change nothing."""
    left(two)
    two.snapshots.create("kept")
    view = two.read_at()
    with lease(0.05):
        two.table("a").append(rows(3))
    assert [(each.name, each.snapshot_id) for each in two.snapshots.tables("kept")] == [
        ("a", 1),
        ("db.b", 1),
    ]
    assert [ids(two.table(name, version="kept")) for name in two.tables()] == [[1], [1]]
    assert [ids(view.table(name)) for name in two.tables()] == [[1], [1]]
    assert [ids(two.read_at().table(name)) for name in two.tables()] == [[1, 3], [1]]


@NOT_YET
@pytest.mark.parametrize("is_transaction", [True, False])
def test_commits_with_an_identity(two: Catalog, left: Left, is_transaction: bool) -> None:
    """What was not committed can be committed by its identity, and then no second time."""
    identity: dict[str, Any] = {"commit_user": "etl", "commit_identifier": 7}
    left(two, **identity)

    def retry() -> None:
        if is_transaction:
            append_both(again(two), 2, **identity)
        else:
            again(two).table("a").append(rows(2), **identity)

    with lease(0.05):
        retry()
    retry()
    assert ids(two.table("a")) == [1, 2]
    assert ids(two.table("db.b")) == ([1, 2] if is_transaction else [1])
    assert two.table("a").snapshot.id == 3


@NOT_YET
def test_mirrors(two: Catalog, left: Left, tmp_path: Path) -> None:
    """They show what counts, and go on behind what does not."""
    a = two.table("a")
    a.mirrors.create("delta", tmp_path / "mirror", name="m")
    left(two)
    a.mirrors.publish("m")
    assert DeltaTable(tmp_path / "mirror").to_pyarrow_table()["id"].to_pylist() == [1]
    with lease(0.05):
        two.table("a").append(rows(3))
    published = two.table("a").mirrors.publish("m")
    shown = DeltaTable(tmp_path / "mirror").to_pyarrow_table()
    assert sorted(shown["id"].to_pylist()) == [1, 3]
    assert published[0].snapshot_id == two.table("a").snapshot.id


@NOT_YET
def test_compaction_and_maintenance(two: Catalog, left: Left) -> None:
    two.table("a").append(rows(8))
    left(two)
    a = two.table("a")
    with lease(0.05):
        a.compact()
    assert (a.snapshot.kind, a.snapshot.parent_void, ids(a)) == ("compact", True, [1, 8])
    give_up(two)
    a.maintain()
    assert ids(two.table("a")) == [1, 8]
    assert a.verify(data=True).ok


@NOT_YET
def test_tables_that_are_renamed_or_dropped(two: Catalog, left: Left) -> None:
    """A drop takes all files with it; the other table goes on."""
    left(two)
    two.rename_table("db.b", "db.c")
    assert ids(two.table("db.c")) == [1]
    two.drop_table("a", purge=True)
    assert not [each for each in Path(two.location, "a").rglob("*") if each.is_file()]
    with lease(0.05):
        two.table("db.c").append(rows(3))
    assert ids(two.table("db.c")) == [1, 3]
