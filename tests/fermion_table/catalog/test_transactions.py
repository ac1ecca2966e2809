"""Transactions over several tables of a catalog: what they do, leave, cost and refuse."""

from __future__ import annotations

import os
import pickle
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Catalog, Table
from fermion_table.catalog import transactions
from fermion_table.catalog.transactions import REFUSED, CatalogTransaction
from fermion_table.errors import (
    CommitConflict,
    CommitStateUnknown,
    CorruptMetadata,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFeature,
    VersionNotFound,
)
from fermion_table.metadata import snapshot as snapshots
from fermion_table.metadata.decisions import decision_path
from fermion_table.metadata.history import newest
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.storage.store import CreateResult
from tests.kit.tables.warehouses import (
    SCHEMA,
    again,
    append_both,
    die_in_transaction,
    give_up,
    ids,
    kill_at_every_step,
    lease,
    rows,
    stop_before_decision,
)

KEYED = {"primary_key": "id", "properties": {"bucket": "1"}}


def files(catalog: Catalog) -> set[Path]:
    """The data files of tables, without those of lists."""
    every = Path(catalog.location).rglob("*.fermion")
    return {each for each in every if "_catalog" not in each.parts}


def shown(catalog: Catalog) -> tuple[list[int], list[int]]:
    return ids(catalog.table("a")), ids(catalog.table("db.b"))


def test_changes_of_several_tables_become_visible_together(catalog: Catalog) -> None:
    """Whatever is done to a table becomes one snapshot, with one time for all tables."""
    for name in ("a", "db.b", "db.`c.d`"):
        catalog.create_table(name, SCHEMA).append(rows(1, 2))
    catalog.create_table("keyed", SCHEMA, **KEYED)
    source = rows(2, 9)
    with catalog.transaction(commit_user="etl", commit_identifier=4) as tx:
        a = tx.table("a")
        a.append(rows(3))
        a.delete("id = 1")
        a.update("id = 3", {"id": 30})
        tx.table("db.b").merge(source, on=["id"]).when_not_matched_insert().execute()
        tx.table("db.b").append_batches([(7, rows(5))])
        tx.table("db.`c.d`").overwrite(rows(6), filter="id = 2")
        tx.table("keyed").upsert(rows(1, 2))
        tx.table("keyed").delete_keys([1])
        assert ids(catalog.table("a")) == [1, 2] == ids(a)
    assert ids(catalog.table("a")) == [2, 30]
    assert ids(catalog.table("db.b")) == [1, 2, 5, 9]
    assert ids(catalog.table("db.`c.d`")) == [1, 6]
    assert ids(catalog.table("keyed")) == [2]
    heads = [catalog.table(name).snapshot for name in catalog.tables()]
    assert [head.id for head in heads] == [2, 2, 2, 1]
    assert len({head.time_ms for head in heads}) == 1
    assert {(head.commit_user, head.commit_identifier) for head in heads} == {("etl", 4)}
    assert all(catalog.table(name).verify(data=True).ok for name in catalog.tables())


def test_schemas_and_columns_change_with_rows_of_other_tables(two: Catalog) -> None:
    """One change of this kind a table; rows may bring columns."""
    two.create_table("c", SCHEMA).append(rows(4))
    with two.transaction() as tx:
        tx.table("a").add_columns({"x": pa.int32()})
        tx.table("c").add_columns_with(
            lambda batch: {"y": batch["id"]}, read=["id"], schema=pa.schema({"y": pa.int64()})
        )
        b = tx.table("db.b")
        b.append(pa.table({"id": [2], "z": ["new"]}), schema_mode="merge")
        with pytest.raises(InvalidArgumentError, match="only change of its table"):
            b.set_properties({"a.b": "c"})
        with pytest.raises(InvalidArgumentError, match="only change of its table"):
            tx.table("a").append(rows(5))
        assert two.table("a").columns == ["id"]
    assert two.table("a").columns == ["id", "x"]
    assert two.table("c").to_arrow().to_pydict() == {"id": [4], "y": [4]}
    assert two.table("db.b").count("z IS NOT NULL") == 1


def test_files_of_writers_are_committed_with_other_tables(two: Catalog) -> None:
    """As engines write: in tasks, whose messages are committed."""
    with two.transaction() as tx:
        a = tx.table("a")
        with pickle.loads(pickle.dumps(a.writer_factory()))() as writer:
            writer.write(rows(2, 3))
            messages = writer.prepare_commit()
        a.commit(messages)
        tx.table("db.b").append(rows(2))
    assert shown(two) == ([1, 2, 3], [1, 2])


def test_one_table_is_an_ordinary_commit_and_none_is_none(two: Catalog) -> None:
    with two.transaction() as tx:
        tx.table("a").append(rows(2))
        tx.table("db.b").delete("id = 100")
    assert two.table("a").snapshot.reader_features == ()
    assert two.table("db.b").snapshot.id == 1
    with two.transaction() as tx:
        tx.table("a").delete("id = 100")
        tx.table("db.b").append(rows().slice(0, 0))
    assert [two.table(name).snapshot.id for name in two.tables()] == [2, 1]
    assert two.transaction().commit() == {}
    assert not Path(two.location, "_catalog", "transactions").exists()


def test_an_exception_gives_up_and_leaves_no_file(two: Catalog) -> None:
    before = files(two)
    with pytest.raises(ZeroDivisionError):
        append_both(two, 2, lambda: 1 // 0)
    assert files(two) == before
    assert shown(two) == ([1], [1])
    with two.transaction() as tx:
        tx.table("a").append(rows(2))
        with pytest.raises(SchemaMismatch):
            tx.table("a").append(pa.table({"id": ["no number"]}))
        tx.table("db.b").append(rows(2))
    assert shown(two) == ([1, 2], [1, 2])


def test_a_pending_snapshot_is_not_seen_and_is_given_up_after_the_lease(two: Catalog) -> None:
    """Readers do not wait; a writer does, and whoever comes back later has lost."""
    stop_before_decision(two)
    a = two.table("a")
    assert newest(a.store).is_undecided
    assert shown(two) == ([1], [1])
    assert a.verify().ok
    with pytest.raises(VersionNotFound, match="does not count"):
        two.table("a", version=2)
    kept = files(two)
    a.remove_orphan_files(older_than=timedelta(days=-1))
    a.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    assert files(two) == kept
    with lease(0.05):
        a.append(rows(3))
        two.table("db.b").append(rows(3))
    assert shown(two) == ([1, 3], [1, 3])


def test_a_writer_waits_for_a_decision_and_builds_on_it(two: Catalog) -> None:
    held, done = threading.Event(), threading.Event()
    decided = CatalogTransaction._decided

    def decide(tx: CatalogTransaction, decision: Any) -> bool:
        held.set()
        done.wait(0.3)
        return decided(tx, decision)

    def transact() -> None:
        with two.transaction() as tx:
            tx.table("a").append(rows(2))
            tx.table("db.b").append(rows(2))

    with mock.patch.object(CatalogTransaction, "_decided", decide):
        thread = threading.Thread(target=transact)
        thread.start()
        assert held.wait(10)
        again(two).table("a").append(rows(3))
        thread.join()
    a = two.table("a")
    assert (a.snapshot.id, a.snapshot.parent_void) == (3, False)
    assert shown(two) == ([1, 2, 3], [1, 2])


def test_a_transaction_that_was_given_up_begins_again(two: Catalog) -> None:
    """A writer that was too slow damages nothing, and commits at the second try."""
    decided, slow = CatalogTransaction._decided, iter([True])

    def decide(tx: CatalogTransaction, decision: Any) -> bool:
        if next(slow, False):
            with lease(0.0):
                again(two).table("a").append(rows(3))
        return decided(tx, decision)

    with mock.patch.object(CatalogTransaction, "_decided", decide), two.transaction() as tx:
        tx.table("a").append(rows(2))
        tx.table("db.b").append(rows(2))
    assert shown(two) == ([1, 2, 3], [1, 2])
    assert [each.id for each in two.table("a").snapshots()] == [0, 1, 3, 4]
    assert two.table("db.b").verify(data=True).ok


def test_a_conflict_in_one_table_publishes_nothing_in_any(two: Catalog) -> None:
    tx = two.transaction()
    for name in ("a", "db.b"):
        tx.table(name).append(rows(2))
    refusing = mock.Mock(side_effect=CommitConflict("another commit came first"))
    tx.table("a")._state.change._plan = refusing  # type: ignore[union-attr, method-assign]
    with pytest.raises(CommitConflict, match="another commit came first"):
        tx.commit()
    two.table("db.b").append(rows(3))
    assert shown(two) == ([1], [1, 3])


def test_the_same_identity_is_committed_once(two: Catalog) -> None:
    for _ in range(2):
        with two.transaction(commit_user="etl", commit_identifier=1) as tx:
            tx.table("a").append(rows(2))
            tx.table("db.b").append(rows(2))
    assert shown(two) == ([1, 2], [1, 2])
    kept = files(two)
    two.create_table("c", SCHEMA)
    tx = two.transaction(commit_user="etl", commit_identifier=1)
    for name in ("a", "c"):
        tx.table(name).append(rows(9))
    with pytest.raises(InvalidArgumentError, match="not to all of these tables"):
        tx.commit()
    assert files(two) == kept
    two.table("a").append(rows(3), commit_user="etl", commit_identifier=1)
    assert ids(two.table("a")) == [1, 2]


def test_what_tables_show_holds_no_half_of_another_transaction(two: Catalog) -> None:
    def other() -> None:
        with again(two).transaction() as tx:
            tx.table("a").append(rows(2))
            tx.table("db.b").append(rows(2))

    with two.transaction() as tx:
        assert ids(tx.table("a")) == [1]
        other()
        with pytest.raises(CommitConflict, match="begin the transaction again"):
            tx.table("db.b")
        tx.abort()
    with two.transaction() as tx:
        tx.table("a").append(rows(3))
        again(two).table("a").append(rows(4))
        tx.table("db.b").append(rows(3))
    assert shown(two) == ([1, 2, 3, 4], [1, 2, 3])


@pytest.mark.parametrize("commits", [1, 40])
@pytest.mark.parametrize("expires", [False, True])
def test_a_half_is_found_whatever_was_committed_after_it(
    two: Catalog, commits: int, expires: bool
) -> None:
    """More commits than are looked at, or ones that have expired: the other table is asked."""
    with two.transaction() as tx:
        assert ids(tx.table("a")) == [1]
        append_both(again(two), 2)
        table = again(two).table("db.b")
        for value in range(commits):
            table.append(rows(10 + value))
        if expires:
            table.expire_snapshots(older_than="0s", retain_last=1)
        with pytest.raises(CommitConflict, match="has changed this table and a, which was opened"):
            tx.table("db.b")
        tx.abort()


def test_a_view_shows_all_tables_at_one_moment(two: Catalog) -> None:
    before = two.read_at()
    at = datetime.fromtimestamp(two.table("db.b").snapshot.time_ms / 1000, UTC)
    with two.transaction() as tx:
        tx.table("a").append(rows(2))
        tx.table("db.b").append(rows(2))
    now = two.read_at()
    assert now.tables() == ["a", "db.b"]
    for view, wanted in ((before, [1]), (now, [1, 2]), (two.read_at(at), [1])):
        assert [ids(view.table(name)) for name in ("a", "db.b")] == [wanted] * 2
    assert two.read_at(at - timedelta(days=1)).tables() == []
    counted = now.sql("SELECT count(*) AS n FROM a JOIN db.b USING (id)").to_arrow()
    assert counted["n"].to_pylist() == [2]
    with pytest.raises(InvalidArgumentError, match="can only be read"):
        now.table("a").append(rows(3))
    with pytest.raises(TableNotFound, match="no such table in this view"):
        now.table("c")


def test_two_transactions_that_read_what_the_other_one_writes(two: Catalog) -> None:
    """Write skew: by isolation of snapshots both are committed, serializable ones are not."""
    for isolation in ("snapshot", "serializable"):
        first, second = (again(two).transaction(isolation=isolation) for _ in range(2))  # type: ignore[arg-type]
        for tx, read, changed in ((first, "a", "db.b"), (second, "db.b", "a")):
            tx.table(changed).append(rows(len(ids(tx.table(read)))))
        assert sorted(first.commit()) == (
            ["a", "db/b"] if isolation == "serializable" else ["db/b"]
        )
        if isolation == "snapshot":
            second.commit()
            continue
        before = files(two)
        with pytest.raises(CommitConflict, match="isolation is serializable: begin"):
            second.commit()
        assert len(before - files(two)) == 1
    assert shown(two) == ([1, 1], [1, 1, 2])
    assert two.table("a").history(limit=1)[0]["message"] == "read by a transaction"


def test_serializable_transactions_pass_over_compactions_and_reads(two: Catalog) -> None:
    """Of the tables that they read and change, and those that they only read."""
    a = two.table("a")
    a.append(rows(2))
    tx = two.transaction(isolation="serializable")
    tx.table("a").append(rows(3))
    tx.table("db.b").delete("id = 100")
    with two.transaction(isolation="serializable") as other:
        other.table("a")
        other.table("db.b").delete("id = 1")
    two.table("db.b").append(rows(1))
    a.compact()
    with pytest.raises(CommitConflict, match="b: changed since the transaction opened snapshot 1"):
        tx.commit()
    with two.transaction(isolation="serializable") as tx:
        tx.table("a").append(rows(3))
        tx.table("db.b")
        two.table("a").compact()
        with two.transaction(isolation="serializable") as other:
            other.table("a")
            other.table("db.b")
    assert shown(two) == ([1, 2, 3], [1])
    tx = two.transaction(isolation="serializable")
    assert ids(tx.table("a")) == [1, 2, 3]
    two.table("a").append(rows(4))
    tx.table("db.b")
    with pytest.raises(CommitConflict, match="a: changed since"):
        tx.commit()
    assert all(two.table(name).verify(data=True).ok for name in two.tables())


def test_compactions_that_show_rows_are_changes_for_serializable_transactions(two: Catalog) -> None:
    """Where scans show what was compacted only, and where compactions remove expired rows."""
    time = {"record_level.expire_time": "1 d", "record_level.time_field": "id"}
    expiring = two.create_table("old", SCHEMA, primary_key="id", properties={"bucket": "1", **time})
    expiring.upsert(rows(1))
    tx = two.transaction(isolation="serializable")
    assert ids(tx.table("old")) == [1]
    tx.table("a").append(rows(2))
    expiring.compact(full=True)
    assert ids(two.table("old")) == []
    with pytest.raises(CommitConflict, match="old: changed since"):
        tx.commit()
    vectors = {"deletion_vectors.enabled": "true", "deletion_vectors.merge_on_read": "false"}
    shown_late = two.create_table(
        "late", SCHEMA, primary_key="id", properties={"bucket": "1", **vectors}
    )
    shown_late.upsert(rows(1))
    tx = two.transaction(isolation="serializable")
    assert ids(tx.table("late")) == []
    tx.table("a").append(rows(2))
    shown_late.compact()
    assert ids(two.table("late")) == [1]
    with pytest.raises(CommitConflict, match="late: changed since"):
        tx.commit()


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_schemas_change_once_by_identity(two: Catalog, isolation: Any) -> None:
    """Also tables that were only read are part of what the identity has committed."""
    two.create_table("c", SCHEMA)
    for _ in range(2):
        with two.transaction(commit_user="x", commit_identifier=1, isolation=isolation) as tx:
            tx.table("a").set_properties({"my.own": "1"})
            tx.table("db.b").append(rows(2))
            tx.table("c")
    assert shown(two) == ([1], [1, 2])
    assert [two.table(name).snapshot.id for name in ("a", "db.b")] == [2, 2]
    assert two.table("a").snapshot.commit_identifier == 1


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_transaction_does_not_offer_is_refused_by_name(two: Catalog, name: str) -> None:
    tx = two.transaction()
    with pytest.raises(InvalidArgumentError, match=f"{name} can't be used in a transaction"):
        getattr(tx.table("a"), name)
    tx.abort()


def test_a_finished_a_copied_and_a_forked_transaction_are_refused(two: Catalog) -> None:
    with two.transaction() as tx:
        a = tx.table("a")
        assert tx.table(("a",)) is a
        for unpicklable in (tx, a):
            with pytest.raises(TypeError, match="can't be pickled or copied"):
                pickle.dumps(unpicklable)
        with pytest.raises(InvalidArgumentError, match="give commit_user"):
            a.append(rows(2), commit_user="x", commit_identifier=1)
        with (
            mock.patch.object(transactions, "process", return_value=object()),
            pytest.raises(InvalidArgumentError, match="forked"),
        ):
            a.append(rows(2))
    for use in (lambda: tx.table("a"), tx.commit, tx.abort, lambda: a.append(rows(2))):
        with pytest.raises(InvalidArgumentError, match="the transaction is finished"):
            use()
    assert ids(a) == [1]
    with pytest.raises(InvalidArgumentError, match="expected 'snapshot' or"):
        two.transaction(isolation="none")  # type: ignore[arg-type]
    assert shown(two) == ([1], [1])


def test_tables_that_are_renamed_dropped_or_elsewhere(two: Catalog, tmp_path: Path) -> None:
    with two.transaction() as tx:
        a = tx.table("a")
        a.append(rows(2))
        two.rename_table("a", "new")
        assert tx.table("new") is a
        tx.table("db.b").append(rows(2))
    assert ids(two.table("new")) == [1, 2]
    two.drop_table("new", purge=True)
    two.create_table("a", SCHEMA)

    def replace() -> None:
        two.drop_table("a", purge=True)
        two.create_table("a", SCHEMA)

    with pytest.raises((CommitConflict, TableNotFound, InvalidArgumentError)):
        append_both(two, 3, replace)
    assert shown(two) == ([], [1, 2])
    Table.create(tmp_path / "elsewhere", SCHEMA)
    two.register_table("far", tmp_path / "elsewhere")
    tx = two.transaction()
    with pytest.raises(InvalidArgumentError, match="outside of the warehouse"):
        tx.table("far")


def test_tables_of_one_transaction_may_be_written_by_several_threads(two: Catalog) -> None:
    with two.transaction() as tx:
        tables = [tx.table(name) for name in ("a", "db.b")]
        threads = [threading.Thread(target=each.append, args=(rows(2),)) for each in tables]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert shown(two) == ([1, 2], [1, 2])


def test_clocks_that_go_back_or_are_ahead_change_nothing(two: Catalog) -> None:
    """A table has a commit of tomorrow, made while the transaction ran."""
    tomorrow = two.table("a").snapshot.time_ms + 86_400_000

    def append_tomorrow() -> None:
        with mock.patch("fermion_table.commit.next_snapshot.now_ms", return_value=tomorrow):
            two.table("a").append(rows(3))

    with mock.patch.object(transactions, "now_ms", return_value=5):
        append_both(two, 2, append_tomorrow)
    heads = [two.table(name).snapshot for name in two.tables()]
    assert heads[0].time_ms == heads[1].time_ms > tomorrow
    assert shown(two) == ([1, 2, 3], [1, 2])


def test_a_reply_that_is_lost_is_told_or_settled(two: Catalog) -> None:
    """A decision that was stored counts; where that can't be read, nothing is deleted."""
    create = LocalStore.create_if_absent

    def lost(store: LocalStore, path: str, data: bytes) -> CreateResult:
        result = create(store, path, data)
        return CreateResult.UNKNOWN if path.startswith("_catalog/transactions/") else result

    with mock.patch.object(LocalStore, "create_if_absent", lost), two.transaction() as tx:
        tx.table("a").append(rows(2))
        tx.table("db.b").append(rows(2))
    assert shown(two) == ([1, 2], [1, 2])
    with (
        mock.patch.object(LocalStore, "create_if_absent", lost),
        mock.patch("fermion_table.metadata.decisions.read_decision", side_effect=OSError),
        pytest.raises(CommitStateUnknown, match="commit it again with the same"),
    ):
        append_both(two, 3)
    assert shown(two) == ([1, 2, 3], [1, 2, 3])


def test_readers_of_before_refuse_tables_with_transactions(two: Catalog) -> None:
    give_up(two)
    two.table("a").append(rows(3))
    known = snapshots.KNOWN_READER_FEATURES - {snapshots.TRANSACTIONS}
    with (
        mock.patch.object(snapshots, "KNOWN_READER_FEATURES", known),
        pytest.raises(UnsupportedFeature, match="needs reader feature 'transactions'"),
    ):
        two.table("a")


def test_a_table_that_left_its_warehouse_is_not_taken_for_undecided(
    two: Catalog, tmp_path: Path
) -> None:
    with two.transaction() as tx:
        tx.table("a").append(rows(2))
        tx.table("db.b").append(rows(2))
    shutil.copytree(Path(two.location, "a"), tmp_path / "moved")
    shared_cache.clear()
    with pytest.raises(CorruptMetadata, match="moved or copied out of its warehouse"):
        Table.open(tmp_path / "moved")
    assert ids(Table.open(tmp_path / "moved", version=1)) == [1]
    shutil.move(two.location, tmp_path / "whole")
    assert shown(Catalog.open(tmp_path / "whole")) == ([1, 2], [1, 2])


def test_a_decision_of_other_snapshots_is_refused(two: Catalog) -> None:
    with two.transaction() as tx:
        tx.table("a").append(rows(2))
        tx.table("db.b").append(rows(2))
    head = two.table("a").snapshot
    assert head.transaction is not None
    path = Path(two.location, decision_path(head.transaction.id))
    text = path.read_text()
    for wrong, found in ((head.hash, "f" * 64), (head.transaction.id, "0" * 32)):
        shared_cache.clear()
        path.write_text(text.replace(wrong, found))
        with pytest.raises(CorruptMetadata, match=r"participant of hash|and id"):
            two.table("a")
    path.write_text(text.replace('"format_version":1', '"format_version":2'))
    with pytest.raises(UnsupportedFeature, match="knows up to 1"):
        two.table("a")


@contextmanager
def counted(*methods: str) -> Iterator[Counter[str]]:
    """How often stores were asked what."""
    counts: Counter[str] = Counter()

    def counting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **words: Any) -> Any:
            counts[name] += 1
            return real(*arguments, **words)

        return call

    asked = methods or ("read", "exists", "size", "list", "write", "create_if_absent", "delete")
    with mock.patch.multiple(
        LocalStore, **{name: counting(name, getattr(LocalStore, name)) for name in asked}
    ):
        yield counts


def test_what_transactions_and_their_readers_cost(two: Catalog) -> None:
    """In requests, as they are made without caches of decisions."""
    tables = [two.table(name) for name in two.tables()]
    with counted() as separately:
        for name in two.tables():
            two.table(name).append(rows(2))
    with two.transaction() as tx:
        tx.table("a").append(rows(3))
        tx.table("db.b").append(rows(3))
    two.table("a").append(rows(4))
    two.table("db.b").append(rows(4))
    with counted() as together, two.transaction() as tx:
        tx.table("a").append(rows(3))
        tx.table("db.b").append(rows(3))
    assert sum(together.values()) <= 2.5 * sum(separately.values())
    assert together["create_if_absent"] == separately["create_if_absent"] + 1

    def cost() -> Counter[str]:
        shared_cache.clear()
        with counted() as counts:
            Table.open(tables[0].location)
        return counts

    of_transaction = cost()
    two.table("a").append(rows(5))
    otherwise = cost()
    assert of_transaction - otherwise == Counter(read=1)
    with counted() as counts:
        Table.open(tables[0].location)
    assert sum(counts.values()) <= sum(otherwise.values())


def test_a_table_is_opened_at_the_same_cost_however_many_were_opened_before(
    catalog: Catalog,
) -> None:
    """Its own history tells which transactions the others may lack."""
    names = [f"t{number:02}" for number in range(12)]
    for name in names:
        catalog.create_table(name, SCHEMA)
    catalog._names.enter()  # to find a table without a row costs one more
    costs = []
    for _ in range(2):
        with catalog.transaction() as tx:
            for name in names:
                with counted() as counts:
                    tx.table(name).append(rows(1))
                costs.append(sum(counts.values()))
    assert len(set(costs[2:12])) == 1
    assert len(set(costs[13:])) == 1


@pytest.mark.long
def test_a_thousand_tables_change_in_one_transaction(tmp_path: Path) -> None:
    """The storage is called as often for each of them as for a few, and a view shows them all."""

    def client() -> Catalog:
        return Catalog.open(tmp_path / "warehouse", durability="fast")

    catalog = client()
    names = [f"t{number}" for number in range(1_000)]
    for name in names:
        catalog.create_table(name, SCHEMA)
    catalog._names.enter()

    def calls(chosen: list[str]) -> int:
        shared_cache.clear()
        with counted() as counts, client().transaction() as tx:
            for name in chosen:
                tx.table(name).append(rows(1))
        return sum(counts.values())

    few = calls(names[:10])
    assert calls(names[10:]) <= 99 * few
    view = client().read_at()
    decided = {view.table(name).snapshot.transaction.id: name for name in names}
    assert len(decided) == 2
    assert all(ids(view.table(name)) == [1] for name in decided.values())


@pytest.mark.parametrize("is_after", [False, True])
def test_a_process_that_is_killed_at_any_step_leaves_all_or_nothing(
    two: Catalog, is_after: bool
) -> None:
    """Forked processes end before or after each object that they store; another one goes on."""

    def run(step: int) -> int:
        child = os.fork()
        if child == 0:
            die_in_transaction(two, step, is_after=is_after)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    kill_at_every_step(two, run)
