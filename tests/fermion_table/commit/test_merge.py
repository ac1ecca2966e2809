"""Where entries go and which manifests merge: bounded, geometric, without loss."""

from __future__ import annotations

import math

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion_table import Table
from fermion_table.commit.next_snapshot import (
    InlinePlan,
    fits_inline,
    needs_rewrite,
    plan_inline,
    plan_merges,
)
from fermion_table.metadata.manifest import ManifestReference
from fermion_table.options import (
    CARRIED_BYTES_MAX,
    CARRIED_ENTRIES_MAX,
    INLINE_BYTES_MAX,
    INLINE_ENTRIES_MAX,
    MERGE_FANOUT,
    MERGE_INPUT_ENTRIES_MAX,
)
from tests.kit.stores import made_up_entry

ENTRY = made_up_entry("a")


def reference(live: int, dead: int = 0) -> ManifestReference:
    return ManifestReference(
        path="m",
        hash="h",
        size=1,
        entries=live + dead,
        dead=tuple(range(dead)),
        rows=live,
        bytes=live,
    )


@pytest.mark.parametrize(
    ("tail", "added", "plan"),
    [
        (0, 0, InlinePlan(flush=False, inline=True)),
        (0, INLINE_ENTRIES_MAX, InlinePlan(flush=False, inline=True)),
        (CARRIED_ENTRIES_MAX - 1, 1, InlinePlan(flush=False, inline=True)),
        (CARRIED_ENTRIES_MAX, 0, InlinePlan(flush=False, inline=True)),
        (CARRIED_ENTRIES_MAX, 1, InlinePlan(flush=True, inline=True)),
        (1, INLINE_ENTRIES_MAX, InlinePlan(flush=True, inline=True)),
        (0, INLINE_ENTRIES_MAX + 1, InlinePlan(flush=False, inline=False)),
        (INLINE_ENTRIES_MAX, INLINE_ENTRIES_MAX + 1, InlinePlan(flush=False, inline=False)),
    ],
)
def test_a_full_tail_is_flushed_and_a_large_commit_bypasses_it(
    tail: int, added: int, plan: InlinePlan
) -> None:
    assert plan_inline([ENTRY] * tail, [ENTRY] * added, is_long=True) == plan


@pytest.mark.parametrize(("tail", "flush"), [(INLINE_ENTRIES_MAX - 1, False), (64, True)])
def test_a_table_without_manifests_fills_one_snapshot(tail: int, flush: bool) -> None:
    plan = plan_inline([ENTRY] * tail, [ENTRY], is_long=False)
    assert plan == InlinePlan(flush=flush, inline=True)


def test_a_table_of_many_commits_repeats_few_entries_though_it_has_few_files(tmp_path) -> None:
    """Its files are merged all the time; snapshots repeated up to 64 of them before."""
    properties = {"compaction.min.file_num": "10"}
    schema = pa.schema({"id": pa.int64()})
    table = Table.create(tmp_path / "t", schema, properties=properties, durability="fast")
    tails = []
    for number in range(INLINE_ENTRIES_MAX + 40):
        table.append({"id": [number]})
        tails.append(len(table.snapshot.tail))
    assert max(tails[:INLINE_ENTRIES_MAX]) > CARRIED_ENTRIES_MAX
    assert max(tails[INLINE_ENTRIES_MAX:]) <= CARRIED_ENTRIES_MAX
    assert table.snapshot.totals.files < INLINE_ENTRIES_MAX // 2
    assert table.scan().to_arrow()["id"].to_pylist() == list(range(INLINE_ENTRIES_MAX + 40))
    assert table.verify().ok


def test_a_tail_is_bounded_in_bytes_too() -> None:
    wide = made_up_entry("a" * (INLINE_BYTES_MAX // 3))
    assert fits_inline([wide, wide])
    assert not fits_inline([wide, wide, wide])
    carried = made_up_entry("a" * (CARRIED_BYTES_MAX // 3))
    for entry, is_long in ((wide, False), (carried, True)):
        plans = [plan_inline([entry] * n, [entry], is_long=is_long) for n in range(3)]
        assert [plan.flush for plan in plans] == [False, False, True]
        assert all(plan.inline for plan in plans)


def test_as_many_manifests_of_one_class_become_one() -> None:
    few = [reference(CARRIED_ENTRIES_MAX)] * (MERGE_FANOUT - 1)
    assert plan_merges(few) == []
    assert plan_merges([*few, reference(1)]) == [tuple(range(MERGE_FANOUT))]
    assert plan_merges([reference(5000), *few, reference(1)]) == [tuple(range(1, MERGE_FANOUT + 1))]


def test_a_manifest_of_mostly_dead_entries_is_rewritten_alone() -> None:
    assert not needs_rewrite(reference(70, 30))
    assert needs_rewrite(reference(69, 31))
    assert plan_merges([reference(100), reference(69, 31), reference(5, 1)]) == [(1,)]


def test_packed_manifests_merge_like_others_and_large_ones_are_left_alone() -> None:
    packed = msgspec.structs.replace(reference(10), kind="packed")
    assert plan_merges([packed] * MERGE_FANOUT) == [tuple(range(MERGE_FANOUT))]
    assert plan_merges([reference(MERGE_INPUT_ENTRIES_MAX + 1)] * MERGE_FANOUT) == []


@given(st.lists(st.tuples(st.integers(1, 20_000), st.integers(0, 3000)), max_size=40))
def test_groups_are_disjoint_and_each_is_worth_rewriting(sizes: list[tuple[int, int]]) -> None:
    references = [reference(*size) for size in sizes]
    groups = plan_merges(references)
    members = [position for group in groups for position in group]
    assert len(members) == len(set(members))
    assert all(list(group) == sorted(group) for group in groups)
    for group in groups:
        assert len(group) >= MERGE_FANOUT or needs_rewrite(references[group[0]])
    assert set(members) >= {at for at, each in enumerate(references) if needs_rewrite(each)}


def test_an_entry_is_rewritten_logarithmically_often_and_manifests_stay_few() -> None:
    """Flush after flush of as many entries as snapshots repeat, merged as planned.

    Entries are counted as they move.
    """
    references: list[ManifestReference] = []
    written = 0
    flushes = 4000
    for _ in range(flushes):
        references.append(reference(CARRIED_ENTRIES_MAX))
        written += CARRIED_ENTRIES_MAX
        while groups := plan_merges(references):
            merged = {position for group in groups for position in group}
            sums = [sum(references[at].live_entries for at in group) for group in groups]
            written += sum(sums)
            references = [each for at, each in enumerate(references) if at not in merged]
            references += [reference(size) for size in sums]
    entries = flushes * CARRIED_ENTRIES_MAX
    assert sum(each.live_entries for each in references) == entries
    assert written / entries <= 1 + math.log(MERGE_INPUT_ENTRIES_MAX, MERGE_FANOUT)
    assert len(references) <= 4 * MERGE_FANOUT + entries / MERGE_INPUT_ENTRIES_MAX
