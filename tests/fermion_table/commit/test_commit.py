"""Commits: what they record, and that they agree with a plain dict."""

from __future__ import annotations

import getpass
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table.commit.commit import Commit, commit, create_table
from fermion_table.commit.request import CommitMetadata, CommitRequest, FileGroup
from fermion_table.errors import (
    CommitConflict,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from fermion_table.metadata.history import latest, load_schema, load_snapshot, walk
from fermion_table.metadata.manifest import DeletionVector, Entry
from fermion_table.metadata.manifest_store import added_entries, live_entries, removed_entries
from fermion_table.metadata.references import create_branch
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.storage.json_codec import decompressed
from fermion_table.storage.local import LocalStore
from fermion_table.storage.paths import snapshot_path
from fermion_table.storage.store import AtomicStore
from tests.kit.stores import MemoryStore, WrappedStore, made_up_entry, made_up_schema
from tests.kit.tables.commit_setups import (
    FIRST_SCHEMA,
    SMALL_TAIL,
    append,
    entries_by_name,
    metadata_objects,
    names,
    new_table,
    referenced_objects,
    small_limits,  # noqa: F401 - a fixture of every test here
)

# Creation


def test_a_new_table_is_snapshot_0_and_empty() -> None:
    store = MemoryStore()
    about = CommitMetadata(message="hello", properties={"k": "v"})
    created = create_table(store, FIRST_SCHEMA, metadata=about)
    assert latest(store) == created
    assert (created.id, created.kind, created.parent, created.branch) == (0, "create", None, "main")
    assert (created.message, created.properties) == ("hello", {"k": "v"})
    assert live_entries(store, created) == []
    assert load_schema(store, created.schema) == FIRST_SCHEMA.data


def test_of_two_creators_one_wins() -> None:
    store = new_table()
    before = dict(store.objects)
    with pytest.raises(TableExists):
        create_table(store, FIRST_SCHEMA)
    assert store.objects == before


def test_of_eight_creators_at_once_one_wins_and_the_others_leave_nothing(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)

    def create(_: int) -> str:
        barrier.wait()
        try:
            return create_table(LocalStore(tmp_path), FIRST_SCHEMA).table_uuid
        except TableExists:
            return ""

    with ThreadPoolExecutor(8) as executor:
        uuids = [uuid for uuid in executor.map(create, range(8)) if uuid]
    store = LocalStore(tmp_path)
    assert uuids == [latest(store).table_uuid]
    assert metadata_objects(store) == referenced_objects(store)


def test_a_commit_to_no_table_says_so(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match=str(tmp_path)):
        append(LocalStore(tmp_path), made_up_entry("a"))


# What a commit records


def test_an_append_adds_its_files_and_records_itself() -> None:
    store = new_table()
    first = append(store, made_up_entry("a", rows=3), message="m")
    second = append(
        store,
        made_up_entry("b", rows=4, sequence_offset=0, partition=("x",)),
        made_up_entry("c", rows=5, sequence_offset=1, partition=("y",), delete_rows=2),
    )
    assert names(store) == ["a", "b", "c"]
    assert second.parent == first.reference
    assert (first.message, first.author) == ("m", getpass.getuser())
    assert second.time_ms > first.time_ms
    assert second.touched.partitions == (("x",), ("y",))
    totals, deltas = second.totals, second.deltas
    assert (totals.files, totals.rows, totals.rows_deleted) == (3, 12, 2)
    assert (deltas.files_added, deltas.rows_added, deltas.files_removed) == (2, 9, 0)
    assert names(store, first) == ["a"]
    assert [entry.path for entry in added_entries(store, second)] == [
        "data/b.fermion",
        "data/c.fermion",
    ]


def test_row_ids_and_sequence_numbers_are_dense_and_never_used_twice() -> None:
    store = new_table()
    append(store, made_up_entry("a", rows=3), made_up_entry("b", rows=4))
    append(store, *(made_up_entry(f"{at}", rows=2, sequence_offset=at) for at in range(6)))
    last = append(store, made_up_entry("z", rows=1))
    entries = live_entries(store, last)
    assert [entry.row_id_base for entry in entries] == [0, 3, 7, 9, 11, 13, 15, 17, 19]
    assert [entry.sequence_number for entry in entries] == [1, 1, 2, 3, 4, 5, 6, 7, 8]
    assert (last.row_id_next, last.sequence_next) == (20, 9)
    assert [entry.added_snapshot for entry in entries] == [1, 1, *[2] * 6, 3]


def test_a_compacted_file_can_keep_the_place_of_what_it_replaces() -> None:
    store = new_table()
    for name in "abc":
        append(store, made_up_entry(name))
    entries = entries_by_name(store)
    merged = made_up_entry(
        "ab", rows=20, source="compact", sequence_start=entries["a"].sequence_number
    )
    group = FileGroup(added=(merged,), removed=(entries["a"], entries["b"]))
    commit(store, CommitRequest(kind="compact", groups=[group]))
    assert names(store) == ["ab", "c"]


def test_a_changed_entry_keeps_its_row_ids_and_place() -> None:
    store = new_table()
    append(store, made_up_entry("a"), made_up_entry("b"))
    append(store, made_up_entry("c"))
    old = entries_by_name(store)["a"]
    vector = DeletionVector(path="deletion/v.dv", size=8, rows=2)
    new = msgspec.structs.replace(old, deletion_vector=vector, delete_rows=2)
    snapshot = commit(store, CommitRequest(kind="delete", removed=[old], added=[new]))
    assert entries_by_name(store)["a"] == new
    assert names(store) == ["a", "b", "c"]
    assert (snapshot.totals.files, snapshot.totals.rows_deleted) == (3, 2)
    assert [entry.deletion_vector for entry in removed_entries(store, snapshot)] == [None]


def test_old_and_new_entries_of_one_large_commit_keep_apart() -> None:
    store = new_table()
    append(store, *(made_up_entry(f"{at}") for at in range(5)))
    old = live_entries(store, latest(store))
    changed = [msgspec.structs.replace(entry, delete_rows=1) for entry in old]
    new = [made_up_entry(f"new-{at}", rows=3) for at in range(5)]
    commit(store, CommitRequest(kind="upsert", removed=old, added=[*changed, *new]))
    entries = live_entries(store, latest(store))
    assert entries[:5] == changed
    assert [entry.added_snapshot for entry in entries] == [1] * 5 + [2] * 5
    assert [entry.row_id_base for entry in entries[5:]] == [50, 53, 56, 59, 62]


def test_a_schema_change_is_a_snapshot_and_ids_only_grow() -> None:
    store = new_table()
    large = made_up_schema(1, comment=" ".join(map(str, range(20_000))))
    changed = commit(store, CommitRequest(kind="schema", schema=large))
    assert changed.schema.path.endswith(".json.zst")
    assert load_schema(store, changed.schema) == large.data
    assert load_schema(store, load_snapshot(store, 0).schema) == FIRST_SCHEMA.data
    assert append(store, made_up_entry("a"), base=changed).schema == changed.schema
    with pytest.raises(CommitConflict, match="can't follow schema 1"):
        commit(store, CommitRequest(kind="schema", schema=made_up_schema(1)))


def test_features_accumulate_and_unknown_ones_stop_writers() -> None:
    store = new_table()
    append(store, made_up_entry("a"), writer_features=["rainbows"])
    with pytest.raises(UnsupportedFeature, match="rainbows"):
        append(store, made_up_entry("b"))
    assert names(store) == ["a"]


def test_many_partitions_are_not_listed() -> None:
    store = new_table()
    entries = [made_up_entry(f"{at}", partition=(at,)) for at in range(65)]
    assert append(store, *entries).touched.partitions == "many"


# Agreement with a plain dict

operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9)),
        st.tuples(st.just("delete"), st.integers(0, 6)),
        st.tuples(st.just("compact"), st.integers(2, 9)),
        st.tuples(st.just("mark"), st.integers(1, 3)),
        st.tuples(st.just("schema"), st.just(0)),
    ),
    max_size=25,
)


class Model:
    """The table as a plain dict of file name to (rows, deleted rows)."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, int]] = {}
        self.names = 0

    def new_entry(self, rows: int, **fields: Any) -> Entry:
        self.names += 1
        return made_up_entry(f"{self.names}", rows=rows, **fields)

    def put(self, entry: Entry) -> None:
        self.files[entry.path] = (entry.rows, entry.delete_rows)


def carry_out(
    store: AtomicStore, model: Model, operation: str, count: int, pick: st.DataObject
) -> None:
    """One commit on the table and on the model."""
    live = {entry.path: entry for entry in live_entries(store, latest(store))}
    chosen = [live[path] for path in pick.draw(st.permutations(sorted(live)))[:count]]
    if operation == "append":
        added = [model.new_entry(at, sequence_offset=at % 2) for at in range(count)]
        request = CommitRequest(kind="append", added=added)
    elif operation == "delete":
        added = []
        by_name = [entry.path if at % 2 else entry for at, entry in enumerate(chosen)]
        request = CommitRequest(kind="delete", removed=by_name)
    elif operation == "compact":
        added = [model.new_entry(sum(entry.rows for entry in chosen), source="compact")]
        group = FileGroup(added=tuple(added), removed=tuple(chosen))
        request = CommitRequest(kind="compact", groups=[group])
    elif operation == "mark":
        added = [
            msgspec.structs.replace(entry, delete_rows=entry.delete_rows + 1) for entry in chosen
        ]
        request = CommitRequest(kind="delete", added=added, removed=chosen)
    else:
        added, chosen = [], []
        schema_id = latest(store).schema.id + 1
        request = CommitRequest(kind="schema", schema=made_up_schema(schema_id))
    commit(store, request)
    if operation != "append":
        for entry in chosen:
            del model.files[entry.path]
    for entry in added:
        model.put(entry)


@given(operations, st.data())
def test_any_sequence_of_commits_agrees_with_a_dict_now_and_at_every_snapshot(
    sequence: list[tuple[str, int]], pick: st.DataObject
) -> None:
    store, model = new_table(), Model()
    states = [dict(model.files)]
    for operation, count in sequence:
        carry_out(store, model, operation, count, pick)
        states.append(dict(model.files))
    newest = latest(store)
    assert newest.id == len(sequence)
    for snapshot in walk(store, newest):
        live = live_entries(store, snapshot)
        expected = states[snapshot.id]
        assert len(live) == len(expected)
        assert {entry.path: (entry.rows, entry.delete_rows) for entry in live} == expected
        assert snapshot.totals.files == len(expected)
        assert snapshot.totals.rows == sum(rows for rows, _ in expected.values())
        assert snapshot.totals.rows_deleted == sum(deleted for _, deleted in expected.values())
        assert len(snapshot.tail) <= SMALL_TAIL
        if snapshot.id:
            check_delta(store, snapshot, states[snapshot.id - 1], expected)
    row_ids = sorted((entry.row_id_base, entry.rows) for entry in live_entries(store, newest))
    assert all(a[0] + a[1] <= b[0] for a, b in itertools.pairwise(row_ids))
    assert metadata_objects(store) == referenced_objects(store)


def check_delta(
    store: AtomicStore, snapshot: Snapshot, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """The delta alone leads from one state to the next."""
    state = dict(before)
    for entry in removed_entries(store, snapshot):
        assert state.pop(entry.path) == (entry.rows, entry.delete_rows)
    for entry in added_entries(store, snapshot):
        state[entry.path] = (entry.rows, entry.delete_rows)
    assert state == after


def test_the_tail_is_flushed_and_manifests_merge_and_die() -> None:
    store = new_table()
    for at in range(40):
        append(store, made_up_entry(f"{at:02}"))
    snapshot = latest(store)
    assert len(snapshot.tail) <= SMALL_TAIL
    assert max(reference.entries for reference in snapshot.manifests) > SMALL_TAIL
    assert names(store) == [f"{at:02}" for at in range(40)]
    entries = live_entries(store, snapshot)
    few = commit(store, CommitRequest(kind="delete", removed=entries[:1]))
    assert [reference.dead for reference in few.manifests if reference.dead] == [(0,)]
    emptied = commit(store, CommitRequest(kind="delete", removed=entries[1:]))
    assert (emptied.manifests, emptied.tail) == ((), ())
    assert len(removed_entries(store, emptied)) == 39


def test_keys_of_a_newer_version_survive_flushing_and_merging() -> None:
    store = new_table()
    for at in range(40):
        append(store, made_up_entry(f"{at:02}", unknown={"future": at}))
    latest_snapshot = latest(store)
    raw = [
        entry
        for reference in latest_snapshot.manifests
        for entry in msgspec.json.decode(decompressed(store.read(reference.path), ""))["entries"]
    ] + msgspec.json.decode(store.read(snapshot_path(40)))["tail"]
    assert sorted(entry["future"] for entry in raw) == list(range(40))


# Conflicts


def test_an_append_does_not_fail_because_of_others() -> None:
    store = new_table()
    base = append(store, made_up_entry("a"))
    append(store, made_up_entry("b"))
    commit(store, CommitRequest(kind="delete", removed=["data/a.fermion"]))
    snapshot = append(store, made_up_entry("c"), base=base)
    assert snapshot.id == 4
    assert names(store) == ["b", "c"]


def test_a_delete_whose_file_is_gone_is_a_conflict_that_names_it() -> None:
    store = new_table()
    base = append(store, made_up_entry("a"), made_up_entry("b"))
    commit(store, CommitRequest(kind="delete", removed=["data/a.fermion"], base=base))
    before = dict(store.objects)
    with pytest.raises(CommitConflict) as caught:
        commit(store, CommitRequest(kind="delete", removed=["data/a.fermion"], base=base))
    assert caught.value.files == ("data/a.fermion",)
    assert caught.value.mine == "delete"
    assert caught.value.theirs == "delete (snapshot 2)"
    assert store.objects == before


def test_a_file_that_was_never_there_is_a_conflict_even_without_a_base() -> None:
    store = new_table()
    with pytest.raises(CommitConflict, match="not live"):
        commit(store, CommitRequest(kind="delete", removed=["data/none.fermion"]))


def test_an_operation_is_computed_again_on_the_snapshot_that_won() -> None:
    store = new_table()
    base = append(store, made_up_entry("a"))
    winner = append(store, made_up_entry("b"))
    seen: list[Snapshot] = []

    def plan(snapshot: Snapshot) -> CommitRequest:
        seen.append(snapshot)
        return CommitRequest(kind="overwrite", removed=live_entries(store, snapshot))

    published = Commit(store, plan, known=base).run()
    assert seen == [base, winner]
    assert published.snapshot.parent == winner.reference
    assert names(store) == []


def test_an_operation_that_keeps_asking_for_files_that_are_gone_ends_in_a_conflict() -> None:
    store = new_table()
    request = CommitRequest(kind="delete", removed=["data/none.fermion"])
    with pytest.raises(CommitConflict, match="not live"):
        Commit(store, lambda snapshot: request).run()


def test_an_operation_that_another_commit_has_made_publishes_nothing_and_stores_nothing() -> None:
    """It is planned once more, and finds nothing to do on the snapshot that won."""
    store = new_table()
    base = append(store, made_up_entry("a"))
    winner = commit(store, CommitRequest(kind="overwrite", removed=["data/a.fermion"], base=base))
    before = dict(store.objects)

    def plan(snapshot: Snapshot) -> CommitRequest | None:
        removed = live_entries(store, snapshot)
        return CommitRequest(kind="overwrite", removed=removed) if removed else None

    published = Commit(store, plan, known=base).run()
    assert (published.snapshot.id, published.entries) == (winner.id, ())
    assert not published.is_earlier
    assert published.seen_at is not None
    assert store.objects == before


def test_a_compaction_publishes_the_groups_that_still_stand() -> None:
    store = new_table()
    base = append(store, *(made_up_entry(name) for name in "abcdef"))
    groups = [
        FileGroup(added=(made_up_entry(a + b),), removed=(f"data/{a}.fermion", f"data/{b}.fermion"))
        for a, b in ("ab", "cd", "ef")
    ]
    commit(store, CommitRequest(kind="delete", removed=["data/d.fermion"], base=base))
    append(store, made_up_entry("g"))
    commit(store, CommitRequest(kind="compact", groups=groups, base=base))
    assert set(names(store)) == {"ab", "c", "ef", "g"}
    with pytest.raises(CommitConflict, match="every group"):
        commit(store, CommitRequest(kind="compact", groups=groups[1:2], base=base))


def test_appends_ask_whether_their_files_fit_a_new_schema() -> None:
    store = new_table()
    base = latest(store)
    changed = commit(store, CommitRequest(kind="schema", schema=made_up_schema(1)))
    asked = []

    def accepts(schema: Any) -> str | None:
        asked.append(schema)
        return None

    append(store, made_up_entry("a"), base=base, accepts_schema=accepts)
    assert asked == [changed.schema]
    with pytest.raises(CommitConflict, match="no default"):
        append(store, made_up_entry("b"), base=base, accepts_schema=lambda schema: "no default")
    assert names(store) == ["a"]


def test_a_table_replaced_by_another_is_not_appended_to() -> None:
    store = new_table()
    base = append(store, made_up_entry("a"))
    store.objects.clear()
    create_table(store, FIRST_SCHEMA)
    append(store, made_up_entry("b"))
    with pytest.raises(CommitConflict, match="replaced"):
        append(store, made_up_entry("c"), base=base)


def test_a_base_that_is_not_in_the_history_is_refused() -> None:
    store = new_table()
    base = append(store, made_up_entry("a"))
    append(store, made_up_entry("b"))
    forged = msgspec.structs.replace(base, hash="0" * 64)
    with pytest.raises(CommitConflict, match="is not in its history any more"):
        append(store, made_up_entry("c"), base=forged)


@pytest.mark.parametrize("branch", ["main", "work"])
@pytest.mark.parametrize(("lost", "newer"), [(1, 0), (3, 0), (1, 1), (3, 1), (3, 3), (3, 5)])
@pytest.mark.parametrize("is_fresh", [True, False])
@pytest.mark.parametrize("is_planned", [True, False])
def test_who_saw_commits_that_a_backup_lacks_does_not_commit_to_it(
    branch: str, lost: int, newer: int, is_fresh: bool, is_planned: bool
) -> None:
    """Neither an id that is free there, nor one that another commit has, is published."""
    store = new_table()
    create_branch(store, "work", append(store, made_up_entry("a")))
    backup = dict(store.objects)

    def appended(name: str) -> Snapshot:
        request = CommitRequest(kind="append", added=[made_up_entry(name)])
        return commit(store, request, branch=branch)

    base = [appended(f"lost{number}") for number in range(lost)][-1]
    store.objects.clear()
    store.objects.update(backup)
    for number in range(newer):
        appended(f"newer{number}")
    state = latest(store, branch=branch)
    request = CommitRequest(kind="append", added=[made_up_entry("mine")], base=base)
    plan = (lambda base: request) if is_planned else request
    seen_at = time.monotonic() if is_fresh else None
    with pytest.raises(
        CommitConflict, match=f"a backup: snapshot {base.id} .append.*open it again"
    ):
        Commit(store, plan, branch=branch, known=base, seen_at=seen_at, looks=is_planned).run()
    assert latest(store, branch=branch) == state
    assert not store.exists(snapshot_path(max(base.id, state.id) + 1, branch))


def test_requests_that_make_no_sense_are_refused() -> None:
    group = FileGroup(added=(made_up_entry("a"),), removed=("data/b.fermion",))
    with pytest.raises(InvalidArgumentError, match="groups"):
        CommitRequest(kind="append", groups=[group])
    with pytest.raises(InvalidArgumentError, match="groups"):
        CommitRequest(kind="compact", groups=[group], added=[made_up_entry("c")])
    with pytest.raises(InvalidArgumentError, match="append removes no files"):
        CommitRequest(kind="append", removed=["data/b.fermion"])
    with pytest.raises(InvalidArgumentError, match="both or neither"):
        CommitMetadata(commit_user="job")


# Once and only once


def test_the_same_user_and_identifier_commit_once() -> None:
    store = new_table()
    first = append(store, made_up_entry("a"), commit_user="job", commit_identifier=1)
    append(store, made_up_entry("b"), commit_user="job", commit_identifier=2)
    append(store, made_up_entry("c"))
    again = append(store, made_up_entry("d"), commit_user="job", commit_identifier=1)
    assert again == first
    assert names(store) == ["a", "b", "c"]
    append(store, made_up_entry("e"), commit_user="other", commit_identifier=1)
    assert names(store) == ["a", "b", "c", "e"]


def test_an_identity_whose_snapshot_has_expired_is_still_not_committed_twice() -> None:
    store = new_table()
    append(store, made_up_entry("a"), commit_user="job", commit_identifier=1)
    append(store, made_up_entry("b"))
    append(store, made_up_entry("c"), commit_user="job", commit_identifier=2)
    store.delete(snapshot_path(1))
    with pytest.raises(CommitConflict, match="before, as snapshot 1, which has expired"):
        append(store, made_up_entry("d"), commit_user="job", commit_identifier=1)
    assert names(store) == ["a", "b", "c"]


def test_an_identified_commit_reads_a_known_history_once() -> None:
    store = WrappedStore(new_table())
    for at in range(5):
        append(store, made_up_entry(f"{at}"), commit_user="job", commit_identifier=at)
    reads: list[str] = []
    counted = CountingStore(store, reads)
    append(counted, made_up_entry("x"), commit_user="job", commit_identifier=99)
    slots = [path for path in reads if path.startswith("snapshot/0")]
    assert slots == [snapshot_path(5)] * 2  # the latest, and for the fence


class CountingStore(WrappedStore):
    """Notes what is read."""

    def __init__(self, inner: AtomicStore, reads: list[str]) -> None:
        super().__init__(inner)
        self.reads = reads

    def call(self, operation: str, *arguments: Any) -> Any:
        if operation == "read":
            self.reads.append(arguments[0])
        return super().call(operation, *arguments)


class Overtaken(WrappedStore):
    """Others commit so many times before each attempt to publish."""

    def __init__(self, inner: AtomicStore, others: list[int]) -> None:
        super().__init__(inner)
        self.others = others

    def call(self, operation: str, *arguments: Any) -> Any:
        if operation == "create_if_absent" and self.others:
            for _ in range(self.others.pop(0)):
                append(self.inner)
        return super().call(operation, *arguments)


def test_a_commit_that_many_others_overtook_catches_up_before_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To wait would only let more of them come first; how many did, the next try sees."""
    store, waits = new_table(), []
    monkeypatch.setattr(Commit, "_wait", lambda commit: waits.append(commit.retries))
    overtaken = Overtaken(store, [40, 20, 3, 1])
    append(overtaken, made_up_entry("late"))
    assert waits == [1, 4]
    assert overtaken.others == []
    assert "late" in str(names(store))
