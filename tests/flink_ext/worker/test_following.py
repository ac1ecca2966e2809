"""Streams as a worker gives them: where they begin, what comes next, and the kinds of rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Table
from flink_ext.worker import following
from tests.kit.flink_worker import Conversation, Refused, ask
from tests.kit.tables.warehouses import give_up, rows, stop_before_decision

COLUMNS = [["k", "BIGINT"], ["v", "BIGINT"]]
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
NAMES = {0: "+I", 1: "-U", 2: "+U", 3: "-D"}


@pytest.fixture
def keyed(tmp_path) -> Table:
    """Snapshots 1 to 3: two keys, one of them updated, the other one deleted."""
    table = Table.create(tmp_path / "k", SCHEMA, primary_key=["k"], properties={"bucket": "2"})
    table.upsert({"k": [1, 2], "v": [10, 20]})
    table.upsert({"k": [1], "v": [11]})
    table.delete("k = 2")
    return table


@pytest.fixture
def plain(tmp_path) -> Table:
    """An append table: rows in snapshot 1, of which snapshot 2 deletes one; then another row."""
    table = Table.create(tmp_path / "a", SCHEMA)
    table.append({"k": [1, 2], "v": [10, 20]})
    table.delete("k = 1")
    table.append({"k": [3], "v": [30]})
    return table


def changes(table: Table, start: int, **fields: Any) -> list[tuple[str, int, int]]:
    """Plan what follows a snapshot, then read all places of it with one worker."""
    skip = {"skip": fields.pop("skip")} if "skip" in fields else {}
    deletes = {"deletes": fields.pop("deletes")} if "deletes" in fields else {}
    asked = {"path": table.location, "columns": COLUMNS, "start": start, **fields}
    plan = ask("plan_changes", **asked)
    conversation = Conversation()
    for group in plan["places"]:
        end = {"end": plan["snapshot"], "places": group["places"]}
        conversation.ask("read_changes", **asked, **end, **skip, **deletes)
    rows = []
    for answer in conversation.end():
        if "error" in answer:
            raise Refused(answer["error"])
        table_rows = answer["table"].to_pylist()
        rows += [(NAMES[row["_row_kind"]], row["k"], row["v"]) for row in table_rows]
    return rows


def test_changes_have_flinks_kinds_in_the_order_of_each_key(keyed):
    rows = changes(keyed, 0)
    assert [row for row in rows if row[1] == 1] == [("+I", 1, 10), ("-U", 1, 10), ("+U", 1, 11)]
    assert [row for row in rows if row[1] == 2] == [("+I", 2, 20), ("-D", 2, 20)]


def test_rows_that_were_emitted_are_skipped_and_the_rest_is_the_same(keyed):
    everything = changes(keyed, 0)
    of_one_key = [row for row in everything if row[1] == 1]
    filters = [
        {
            "op": "=",
            "args": [
                {"op": "column", "column": "k"},
                {"op": "literal", "kind": "integer", "value": "1"},
            ],
        }
    ]
    for skip in range(4):
        assert changes(keyed, 0, filters=filters, skip=skip) == of_one_key[skip:]


def test_a_long_history_is_followed_in_intervals(keyed, monkeypatch):
    monkeypatch.setattr(following, "COMMITS_MAX", 2)
    plan = ask("plan_changes", path=keyed.location, columns=COLUMNS, start=0)
    assert (plan["snapshot"], plan["latest"]) == (2, 3)
    rest = ask("plan_changes", path=keyed.location, columns=COLUMNS, start=2)
    assert rest["snapshot"] == 3
    nothing = ask("plan_changes", path=keyed.location, columns=COLUMNS, start=3)
    assert (nothing["snapshot"], nothing["places"]) == (3, [])


def test_transactions_that_were_given_up_are_passed_over(two, monkeypatch):
    """Also where an interval would end with one of them, or has nothing else."""
    monkeypatch.setattr(following, "COMMITS_MAX", 2)
    for number in (2, 3, 4):
        give_up(two, number)
    a = two.table("a")
    a.append(rows(5))
    stop_before_decision(two, 6)
    asked = {"path": a.location, "columns": [["id", "BIGINT"]]}
    plan = ask("plan_changes", **asked, start=0)
    assert (plan["snapshot"], plan["latest"]) == (1, 5)
    rest = ask("plan_changes", **asked, start=1)
    assert (rest["snapshot"], len(rest["places"])) == (5, 1)
    assert ask("plan_changes", **asked, start=5)["places"] == []


@pytest.mark.parametrize(
    ("deletes", "expected"),
    [
        ("emit", [("+I", 1, 10), ("+I", 2, 20), ("-D", 1, 10), ("+I", 3, 30)]),
        ("ignore", [("+I", 1, 10), ("+I", 2, 20), ("+I", 3, 30)]),
    ],
)
def test_deletions_of_an_append_table_are_emitted_or_left_out(plain, deletes, expected):
    assert changes(plain, 0, deletes=deletes) == expected


def test_deletions_fail_where_a_stream_can_not_tell_of_them_and_the_snapshot_is_named(plain):
    with pytest.raises(Refused, match=r"snapshot 2 deleted rows.*'scan.deletes'"):
        changes(plain, 0, deletes="fail")


def test_appended_files_are_read_together_up_to_a_size(plain, monkeypatch):
    plan = ask("plan_changes", path=plain.location, columns=COLUMNS, start=2)
    plain.append({"k": [4], "v": [40]})
    both = ask("plan_changes", path=plain.location, columns=COLUMNS, start=2)
    assert [len(each["places"]) for each in (*plan["places"], *both["places"])] == [1, 2]
    monkeypatch.setattr(following, "SPLIT_BYTES", 1)
    apart = ask("plan_changes", path=plain.location, columns=COLUMNS, start=2)
    assert [len(each["places"]) for each in apart["places"]] == [1, 1]


def test_a_position_that_has_expired_is_named(keyed):
    keyed.expire_snapshots(older_than="0 s", retain_last=1)
    with pytest.raises(Refused, match="no snapshot 1"):
        ask("plan_changes", path=keyed.location, columns=COLUMNS, start=1)


@pytest.mark.parametrize("mode", ["latest-full", "latest", "from-snapshot"])
def test_a_new_consumer_is_recorded_where_the_stream_begins(keyed, mode):
    """And only `latest-full` has splits of that snapshot."""
    version = {"snapshot_id": 2} if mode == "from-snapshot" else {}
    begun = ask(
        "begin",
        path=keyed.location,
        columns=COLUMNS,
        mode=mode,
        version=version,
        consumer="report",
    )
    assert begun["snapshot"] == (2 if version else 3)
    assert bool(begun["splits"]) == (mode == "latest-full")
    assert [each.snapshot_id for each in keyed.consumers.list()] == [begun["snapshot"]]


def test_a_consumer_goes_on_where_it_was_whatever_the_mode(keyed):
    keyed.consumers.record("report", version=1)
    begun = ask("begin", path=keyed.location, columns=COLUMNS, consumer="report")
    assert (begun["snapshot"], begun["splits"]) == (1, [])
    ask("record_consumer", path=keyed.location, consumer="report", snapshot=2)
    assert [each.snapshot_id for each in keyed.consumers.list()] == [2]


def test_a_consumer_of_another_branch_is_refused(keyed):
    keyed.consumers.record("report", version=1)
    keyed.branches.create("dev")
    with pytest.raises(Refused, match="consumer 'report' reads branch 'main', not 'dev'"):
        ask("begin", path=keyed.location, columns=COLUMNS, consumer="report", branch="dev")
