"""Verifying primary-key tables: runs whose files have keys in common are found and named."""

from __future__ import annotations

import pytest

from fermion_table.checks.verify import verify
from fermion_table.commit import next_snapshot
from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitRequest
from tests.kit.stores import MemoryStore, made_up_entry
from tests.kit.tables.commit_setups import new_table


def put(store: MemoryStore, *files: dict) -> None:
    """Commit entries of files of one tree."""
    added = []
    for number, fields in enumerate(files):
        known = {"bucket": 0, "total_buckets": 2, "level": 0, "min_key": "00", "max_key": "0f"}
        added.append(made_up_entry(f"{len(store.objects)}-{number}", **{**known, **fields}))
        store.write(added[-1].path, b"." * added[-1].size)
    commit(store, CommitRequest(kind="upsert", added=added))


@pytest.mark.parametrize("inline", [1, 64])
def test_runs_that_overlap_each_other_are_no_problem(inline, monkeypatch):
    """Inline entries, and those of manifests, which inherit what tells runs of level 0 apart."""
    monkeypatch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", inline)
    store = new_table()
    for _ in range(4):
        put(store, {}, {"sequence_offset": 1}, {"min_key": "10", "max_key": "1000"})
    put(store, *({"level": level} for level in (1, 2, 5)))
    put(store, {"level": 1, "bucket": 1}, {"level": 1, "partition": ("a",)})
    assert str(verify(store)).endswith("OK")


@pytest.mark.parametrize(
    "files",
    [
        [{"level": 2}, {"level": 2, "min_key": "0f", "max_key": "20"}],
        [{"level": 0}, {"level": 0, "min_key": "0f00", "max_key": "10"}, {"min_key": "0f"}],
        [{"level": 3, "min_key": "20"}],
    ],
    ids=["a level", "a flush", "bounds the wrong way round"],
)
@pytest.mark.parametrize("inline", [1, 64])
def test_files_of_a_run_with_keys_in_common_are_found(files, inline, monkeypatch):
    monkeypatch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", inline)
    store = new_table()
    put(store, *files)
    put(store, {"bucket": 1})
    problems = {(p.path, p.expected.rsplit(" in ", 1)[1]) for p in verify(store).problems}
    level = files[0]["level"]
    where = f"a sorted run of level {level} of bucket 0 of partition ()"
    if level == 3:
        where = where.replace("a sorted run of level 3", "a file of a tree")
    assert {path for path, _ in problems} == {f"snapshot/{n:020}.json" for n in (1, 2)}
    assert {text for _, text in problems} == {where}


@pytest.mark.parametrize("fields", [{"min_key": None}, {"max_key": 7}, {"level": -1}])
def test_a_file_of_a_tree_without_bounds_or_level_is_found(fields):
    store = new_table()
    put(store, fields)
    (problem,) = verify(store).problems
    assert problem.expected.startswith("a level and bounds of keys in data/")


def test_files_of_append_tables_are_no_runs():
    store = new_table()
    put(store, *({"bucket": None, "min_key": None, "max_key": None} for _ in range(3)))
    assert verify(store).ok
