"""Real tables give what Paimon's library returned after each commit, with and without compaction.

Each history is written commit by commit. Left out is what `is_left_out` says: results that depend
on how rows were grouped into commits, combinations that are refused here for that reason, and keys
of floats or with nulls. Rows of dynamic buckets, which do not exist here, go into two fixed ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fermion.errors import FermionError
from fermion_table import Table
from tests.kit.tables.merge_rows import Row, batch_of
from tests.kit.tables.paimon_histories import (
    FILES,
    histories,
    is_left_out,
    properties_of,
    rows_of,
    schema_of,
    shown,
)

WHOLE = (*FILES, "partition-bucket", "changes")
SAMPLED, SAMPLED_COMPACTED = 3, 12
"""CI replays every third history as it is and every twelfth with compactions; slow tests all."""

NOT_REFUSED = {
    "layout/invalid/bucket-key-with-dynamic-bucket": "dynamic buckets are fixed ones here",
    "layout/invalid/primary-key-equals-partition": "a partition of one row is of no harm",
    "layout/invalid/rowkind-field-missing": "kinds are given with the data here",
    "layout/invalid/rowkind-null": "`write` says that such rows are insertions",
}

Step = Callable[[Table, int], Any]
STEPS: dict[str, Step] = {
    "compact": lambda table, number: table.compact(),
    "compact fully": lambda table, number: table.compact(full=True),
    "compact in turns": lambda table, number: number % 3 and table.compact(full=number % 3 == 2),
}
TRIGGER = {"num-sorted-run.compaction-trigger": "2"}


def create(history: dict, path: Path, **settings: str) -> Table:
    """Make the table of a history."""
    return Table.create(
        path,
        schema_of(history, with_nulls=True),
        primary_key=history["primary_key"],
        partition_by=history["partition"] or None,
        properties=properties_of(history) | settings,
        durability="fast",
    )


def write(table: Table, history: dict, number: int) -> None:
    """Carry out one commit of a history."""
    schema = schema_of(history)
    rows = rows_of(history["commits"][number], schema)
    spec = history.get("overwrite", {}).get(str(number))
    if spec is None:
        kinds = pa.array([row["_kind"] or "+I" for row in rows], pa.string())
        data = pa.Table.from_batches([batch_of(rows, schema)]).append_column("_kind", kinds)
        table.upsert(data, change_type="_kind")
    elif spec:
        filter = " AND ".join(f"{name} = '{value}'" for name, value in spec.items())
        table.overwrite(batch_of(rows, schema), filter=filter)
    else:
        is_static = history["options"].get("dynamic-partition-overwrite") == "false"
        dynamic = bool(history["partition"]) and not is_static
        table.overwrite(batch_of(rows, schema), dynamic=dynamic)


def replay(history: dict, path: Path, step: Step | None = None) -> None:
    """Write a history; of each of its snapshots a scan returns what Paimon returned then."""
    table = create(history, path, **(TRIGGER if step else {}))
    schema, key = schema_of(history), history["primary_key"]
    versions: dict[int, list[Row]] = {}
    for number, expected in enumerate(history["expected_after"]):
        write(table, history, number)
        wanted = shown(batch_of(rows_of(expected, schema), schema).to_pylist(), key)
        versions[table.snapshot.id] = wanted
        if step is not None:
            step(table, number)
            versions[table.snapshot.id] = wanted
    for number, wanted in versions.items():
        scan = table.scan(snapshot_id=number, threads=1)
        check(scan, wanted, key, f"{history['name']}, snapshot {number}")


def check(scan: Any, wanted: list[Row], key: list[str], where: str) -> None:
    assert shown(scan.to_arrow().to_pylist(), key) == wanted, where
    assert scan.count() == len(wanted), where


def replayed(name: str, shared_data: Path) -> list[dict]:
    """Return the histories of a file that Paimon could read to the end, but for those left out."""
    return [
        history
        for history in histories(name, shared_data)
        if not history["error"] and not is_left_out(history)
    ]


@pytest.mark.parametrize("sampled", [SAMPLED, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WHOLE)
def test_scans_return_what_paimon_returned_after_each_commit(name, sampled, shared_data, tmp_path):
    found = replayed(name, shared_data)
    for number, history in enumerate(found[WHOLE.index(name) % sampled :: sampled]):
        replay(history, tmp_path / str(number))
    least = {"deduplicate": 55, "sequence-field": 50, "aggregation": 50, "first-row": 15}
    assert len(found) >= least.get(name, 20)


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", WHOLE)
def test_compaction_changes_no_result(name, step, shared_data, tmp_path):
    """Every twelfth history, another one in each file and with each step."""
    first = (WHOLE.index(name) + 4 * list(STEPS).index(step)) % SAMPLED_COMPACTED
    for number, history in enumerate(replayed(name, shared_data)[first::SAMPLED_COMPACTED]):
        replay(history, tmp_path / str(number), STEPS[step])


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", WHOLE)
def test_compaction_changes_no_result_of_any_history(name, step, shared_data, tmp_path):
    for number, history in enumerate(replayed(name, shared_data)):
        replay(history, tmp_path / str(number), STEPS[step])


@pytest.mark.parametrize("name", WHOLE)
def test_what_paimon_refuses_as_invalid_is_refused(name, shared_data, tmp_path):
    """By the creation, a write, or a read."""
    for number, history in enumerate(histories(name, shared_data)):
        refused = (history["error"] or {}).get("class") in ("invalid", "overflow")
        if refused and history["name"] not in NOT_REFUSED:
            with pytest.raises(FermionError):
                write_whole(history, tmp_path / str(number))


def write_whole(history: dict, path: Path) -> None:
    table = create(history, path)
    for number in range(len(history["commits"])):
        write(table, history, number)
    table.scan().to_arrow()


@pytest.mark.long
@pytest.mark.parametrize("sampled", [2, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", [None, "compact in turns"])
def test_filtered_and_projected_reads_return_what_paimon_returned(
    step, sampled, shared_data, tmp_path
):
    """In short runs half of the histories with compactions, the others without."""
    compared = 0
    found = histories("reads", shared_data)[1 if step and sampled > 1 else 0 :: sampled]
    for at, history in enumerate(found):
        table = create(history, tmp_path / str(at), **TRIGGER)
        for number in range(len(history["commits"])):
            write(table, history, number)
            if step:
                STEPS[step](table, number)
        for read in history["reads"]:
            scan = table.scan(
                filter=condition(read["filter"]), columns=read["projection"], threads=1
            )
            found = sorted(map(repr, scan.to_arrow().to_pylist()))
            assert found == sorted(map(repr, read["expected"])), (history["name"], read)
            assert scan.count() == len(found)
            compared += 1
    assert compared > 200 // sampled


def condition(filter: list | None) -> Any:
    """Return the filter of a read as an expression."""
    if filter is None:
        return None
    name, operation, value = filter
    column = pc.field(name)
    conditions: dict[str, Callable[[], Any]] = {
        "=": lambda: column == value,
        "<>": lambda: column != value,
        "<": lambda: column < value,
        ">=": lambda: column >= value,
        "in": lambda: column.isin(value),
        "is null": lambda: column.is_null(),
        "is not null": lambda: column.is_valid(),
        "starts with": lambda: pc.starts_with(column, value),
    }
    return conditions[operation]()
