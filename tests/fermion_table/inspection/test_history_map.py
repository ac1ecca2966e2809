"""The history of a table as a picture needs it: every snapshot once, with its branch and parent."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fermion_table import Table
from fermion_table.inspection import history_map as module
from fermion_table.inspection.history_map import history_map
from fermion_table.metadata.manifest_store import live_entries


def rows(count: int, start: int = 0) -> pa.Table:
    return pa.table({"id": np.arange(start, start + count), "day": np.full(count, start % 3)})


def map_of(table: Table, **options: Any) -> dict[str, Any]:
    state = table._state
    return history_map(state.store, state.snapshot, state.branch, **options)


def text_of(found: dict[str, Any], name: str) -> list[str]:
    return [found["texts"][each] for each in found["snapshots"][name]]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two branches, one of them merged, and tags."""
    found = Table.create(tmp_path / "t", rows(0).schema, durability="fast")
    found.append(rows(10), message="first")
    found.tags.create("v1", message="one")
    found.branches.create("side", message="try")
    side = Table.open(found.location, branch="side", durability="fast")
    side.append(rows(5, 10))
    found.append(rows(3, 20))
    found.branches.merge("side")
    found.compact()
    found.branches.create("empty")
    return found


def test_every_snapshot_is_there_once_with_what_it_comes_from(table):
    """Beside the table's own lists; numbers of each are those of its snapshot."""
    found = map_of(table)
    side = Table.open(table.location, branch="side")
    known = {each.hash: each for each in [*table.snapshots(), *side.snapshots()]}
    ordered = sorted(known.values(), key=lambda each: each.time_ms)
    columns = found["snapshots"]
    assert columns["id"] == [each.id for each in ordered]
    assert text_of(found, "branch") == [each.branch for each in ordered]
    assert text_of(found, "kind") == [each.kind for each in ordered]
    assert text_of(found, "message")[1] == "first"
    hashes = [each.hash for each in ordered]
    parents = [-1 if each.parent is None else hashes.index(each.parent.hash) for each in ordered]
    assert columns["parent"] == parents
    assert columns["total_rows"] == [each.totals.rows for each in ordered]
    assert columns["files_added"] == [each.deltas.files_added for each in ordered]
    changes = np.array(columns["rows_added"]) - columns["rows_removed"]
    main = [place for place, each in enumerate(ordered) if each.branch == "main"]
    assert changes[main].sum() == columns["total_rows"][-1] == 18
    assert {len(values) for values in columns.values()} == {len(ordered)}
    (merged,) = [place for place, brought in enumerate(columns["brought"]) if brought >= 0]
    assert columns["brought"][merged] == text_of(found, "branch").index("side")
    assert found["tags"] == [{"name": "v1", "snapshot": 1, "message": "one"}]
    heads = {each["name"]: (each["head"], each["parent"]) for each in found["branches"]}
    last = len(ordered) - 1
    assert heads == {"main": (last, None), "side": (2, "main"), "empty": (last, "main")}
    assert found["table"] | {"location": ""} == {
        "location": "",
        "branch": "main",
        "columns": 2,
        "primary_key": False,
        "shown": last,
        "is_cut": False,
    }
    assert found["trees"] is None


def test_a_limit_an_expiry_and_a_tag_leave_parts_of_the_history(table):
    """What is left out is told; a tag's snapshot, and the one that is looked at, stay."""
    limited = map_of(table, limit=2)
    assert limited["table"]["is_cut"]
    # Two of main, and two of the branch: its own, and the one that it left, which the tag names.
    assert limited["snapshots"]["id"] == [1, 2, 3, 4]
    assert limited["tags"][0]["snapshot"] >= 0
    older = Table.open(table.location, version=2)
    shown = map_of(older)
    assert shown["snapshots"] == map_of(table)["snapshots"]
    assert shown["snapshots"]["id"][shown["table"]["shown"]] == 2
    table.branches.delete("empty")
    table.branches.delete("side")
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    kept = map_of(Table.open(table.location))
    assert kept["table"]["is_cut"]
    assert kept["tags"][0]["snapshot"] >= 0
    assert len(kept["snapshots"]["id"]) < len(shown["snapshots"]["id"])


def test_trees_have_every_live_file_by_bucket_level_and_run(tmp_path, monkeypatch):
    """Runs of level 0 one by one; of many trees the largest are shown."""
    table = Table.create(
        tmp_path / "t",
        rows(0).schema,
        primary_key=["day", "id"],
        partition_by=["day"],
        properties={"bucket": "2"},
        durability="fast",
    )
    assert map_of(table)["trees"]["bucket"] == []
    for start in (0, 30, 60):
        table.upsert(rows(40, start))
    table.compact(full=True)
    for start in (0, 1, 61):
        table.upsert(rows(20, start))
    trees = map_of(table)["trees"]
    runs = trees["runs"]
    entries = live_entries(table._state.store, table.snapshot)
    for name, total in (
        ("files", len(entries)),
        ("rows", sum(each.rows for each in entries)),
        ("bytes", sum(each.size for each in entries)),
    ):
        assert sum(runs[name]) == total
    named = [
        (trees["partitions"][p], b)
        for p, b in zip(trees["partition"], trees["bucket"], strict=True)
    ]
    assert named == [("day=0", 0), ("day=0", 1), ("day=1", 0), ("day=1", 1)]
    by_tree = [
        (each.partition[0] * 2 + (each.bucket or 0), each.level)
        for each in sorted(entries, key=lambda each: each.level)
    ]
    assert sorted(zip(runs["tree"], runs["level"], strict=True)) == sorted(by_tree)
    assert 0 in runs["level"]
    assert max(runs["level"]) > 0
    monkeypatch.setattr(module, "TREES_MAX", 3)
    cut = map_of(table)["trees"]
    assert (len(cut["bucket"]), cut["left_out"]) == (3, 1)


def test_names_of_partitions_and_messages_are_bounded_text(tmp_path):
    """Whatever they hold; the page has them as JSON."""
    hostile = "</script>\u202e" + "x" * 1_000
    table = Table.create(
        tmp_path / "t",
        pa.schema([("id", pa.int64()), ("p", pa.string())]),
        primary_key=["p", "id"],
        partition_by=["p"],
        properties={"bucket": "1"},
        durability="fast",
    )
    table.upsert(pa.table({"id": [1, 2], "p": [hostile, ""]}), message=hostile)
    found = map_of(table)
    assert found["trees"]["partitions"] == ["p=", f"p={hostile}"[:197] + "..."]
    assert max(map(len, found["texts"])) == 200
    page = table.history_html()
    assert "\u202e" not in page
    assert page.count("</script>") == 2


def test_limits_are_checked(table):
    with pytest.raises(TypeError, match="limit"):
        table.history_html(limit="many")
    with pytest.raises(ValueError, match="limit"):
        table.history_html(limit=0)
