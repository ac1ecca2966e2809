"""Tasks of a scan that merges some files: merged apart from the others, and of balanced cost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion_table import ScanPlan, Table
from fermion_table.engine import FileSplit, Split
from fermion_table.options import FOLD_COST, MIB, OPEN_COST_BYTES, PICK_COST
from fermion_table.trees.section_reader import SectionSplit


def file(name: str, size: int) -> FileSplit:
    return FileSplit(location=name, file=name, size=size, rows=1_000_000)


def section(name: str, *sizes: int, merge_cost: int = PICK_COST) -> SectionSplit:
    return SectionSplit(tuple((file(f"{name}{size}", size),) for size in sizes), merge_cost)


def plan(*splits: Split) -> ScanPlan:
    return ScanPlan(snapshot_id=0, splits=splits)


def cost(task: tuple[Split, ...]) -> int:
    return sum(split.cost for split in task)


def is_merged(task: tuple[Split, ...]) -> bool:
    """Whether a task merges; no task does both."""
    (found,) = {isinstance(split, SectionSplit) for split in task}
    return found


def test_few_merges_do_not_wait_behind_many_files_and_share_no_task_with_them():
    """The costliest merge starts first; small ones share a task, whose load is balanced."""
    raw = [file(str(number), 60 * MIB) for number in range(20)]
    small = [section(str(number), MIB, MIB) for number in range(8)]
    big, huge = section("b", 30 * MIB, 10 * MIB), section("h", 100 * MIB, 50 * MIB)
    tasks = plan(*raw, *small, big, huge).tasks(128 * MIB)
    merges = [is_merged(task) for task in tasks]
    assert merges == sorted(merges, reverse=True)
    assert tasks[0] == (huge,)
    costs = [cost(task) for task in tasks if is_merged(task)]
    assert costs == sorted(costs, reverse=True)
    assert max(costs[1:]) <= 128 * MIB
    read = [cost(task) for task in tasks if not is_merged(task)]
    assert len(read) >= 20 * 64 // 128
    assert max(read) <= 128 * MIB


def test_a_byte_to_be_merged_weighs_more_than_one_that_is_read():
    picked, folded = (section("s", 8 * MIB, 2 * MIB, merge_cost=each) for each in (2, 4))
    assert picked.cost == 20 * MIB + 2 * OPEN_COST_BYTES
    assert folded.cost == 40 * MIB + 2 * OPEN_COST_BYTES
    assert file("f", 10 * MIB).cost == 10 * MIB + OPEN_COST_BYTES
    # As many bytes are read as they are; merging them is given more of the tasks.
    tasks = plan(file("f", 320 * MIB), *[folded] * 32).tasks(tasks_min=12)
    counts = [is_merged(task) for task in tasks]
    assert counts.count(True) == pytest.approx(4.8 * counts.count(False), rel=0.35)


sizes = st.integers(1, 300 * MIB)


@given(
    st.lists(sizes, max_size=12),
    st.lists(st.lists(sizes, min_size=1, max_size=3), max_size=12),
    st.integers(MIB, 512 * MIB),
    st.integers(1, 40),
)
def test_every_split_is_in_one_task_and_none_is_much_costlier_than_needed(
    raw, merged, target, tasks_min
):
    sections = [section(f"{number}.", *runs) for number, runs in enumerate(merged)]
    files = [file(f"f{number}", size) for number, size in enumerate(raw)]
    tasks = plan(*files, *sections).tasks(target, tasks_min=tasks_min)
    found = [split for task in tasks for split in task if isinstance(split, SectionSplit)]
    assert sorted(found, key=sections.index) == sections
    rows = dict.fromkeys((each.file for each in files), 0)
    for task in tasks:
        if not is_merged(task):
            for part in task:
                rows[part.files[0].file] += part.rows_wanted
    assert all(count == 1_000_000 for count in rows.values())
    loads = [cost(task) for task in tasks if is_merged(task)]
    if loads:
        assert max(loads) <= max(target, OPEN_COST_BYTES) + max(each.cost for each in sections)


def test_a_scan_of_a_keyed_table_says_how_its_sections_are_merged(tmp_path: Path):
    """Two of four buckets hold newer rows."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    for name, settings, weight in (
        ("picked", {}, PICK_COST),
        ("by sequence", {"sequence.field": "v"}, FOLD_COST),
        ("folded", {"merge_engine": "aggregation"}, FOLD_COST),
    ):
        properties = {"bucket": "4", **settings}
        table = Table.create(tmp_path / name, schema, primary_key=["k"], properties=properties)
        table.upsert({"k": range(100), "v": range(100)})
        table.compact(full=True)
        table.upsert({"k": [1, 2], "v": [7, 8]})
        scan = table.scan()
        tasks = scan.plan().tasks(1)
        merges = [is_merged(task) for task in tasks]
        assert merges == sorted(merges, reverse=True)
        assert merges.count(True) in (1, 2)
        assert {s.merge_cost for task in tasks if is_merged(task) for s in task} == {weight}
        batches = [b for task in tasks for split in task for b in scan.reader.read(split)]
        assert sum(batch.num_rows for batch in batches) == 100
