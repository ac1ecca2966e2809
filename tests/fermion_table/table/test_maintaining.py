"""Maintenance by a policy: compaction, expiry and orphans in one call, beside everybody else."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.metadata.history import latest
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.storage.paths import data_path, unique_name
from tests.kit.stores import WrappedStore

ID = pa.schema([("id", pa.int64())])
IDLE_CALLS = {"exists": 10, "list": 35, "read": 29}
AT_ONCE = {"snapshot_age": "1 ms", "snapshots_min": 1, "orphan_age": "1 ms"}


@pytest.fixture
def table(table_path: Path) -> Table:
    """Five small files, and an orphan of a writer of last week."""
    made = Table.create(table_path, ID, durability="fast")
    for number in range(5):
        made.append({"id": [number]})
    orphan(table_path)
    return made


def orphan(path: Path) -> Path:
    left = Path(path, data_path(unique_name()))
    left.write_bytes(b"half")
    week_ago = time.time() - 7 * 86400
    os.utime(left, (week_ago, week_ago))
    return left


def outcomes(result: Any) -> dict[str, str]:
    return {step.name: step.outcome for step in result.steps}


def rows(table: Table) -> list[int]:
    return sorted(Table.open(table.location).to_arrow()["id"].to_pylist())


def test_one_call_compacts_expires_and_removes_orphans_and_says_so(table: Table) -> None:
    time.sleep(0.01)
    result = table.maintain(AT_ONCE)
    assert outcomes(result) == dict.fromkeys(("compact", "expire", "remove_orphans"), "done")
    by_name = {step.name: step.figures for step in result.steps}
    assert (by_name["compact"]["files_before"], by_name["compact"]["files_after"]) == (5, 1)
    assert by_name["remove_orphans"]["files"] == 1
    assert result.files == by_name["expire"]["files"] + 1
    assert result.ok
    assert "rewrote 5 files" in str(result)
    assert rows(table) == [0, 1, 2, 3, 4]
    assert table.verify(data=True).ok
    assert table.maintain().files == 0


def test_a_dry_run_says_what_would_be_done_and_touches_nothing(table: Table) -> None:
    def listing() -> set[str]:
        return {str(path) for path in Path(table.location).rglob("*")}

    before = listing()
    result = table.maintain(dry_run=True)
    assert listing() == before
    assert result.dry_run
    assert "would rewrite 5 files" in str(result)
    assert result.files == 1


def test_the_policy_is_a_property_of_the_table_and_a_call_may_differ(table: Table) -> None:
    table.set_properties(
        {
            "fermion.maintain.compact": "false",
            "fermion.maintain.expire": "false",
            "fermion.maintain.orphan_age": "30d",
        }
    )
    result = table.maintain()
    assert outcomes(result) == {"compact": "off", "expire": "off", "remove_orphans": "done"}
    assert result.files == 0
    changed = table.maintain({"fermion.maintain.compact": True, "orphan_age": timedelta(days=1)})
    assert outcomes(changed)["compact"] == "done"
    assert changed.files == 1


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"snapshot_aeg": "7d"}, "did you mean 'snapshot_age'"),
        ({"snapshot_age": "week"}, "snapshot_age.*is not a duration"),
        ({"snapshots_min": 0}, "expected a number from 1"),
        ({"compact": "yes"}, "expected true or false"),
    ],
)
def test_a_wrong_policy_is_refused_before_anything_is_done(
    table: Table, policy: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        table.maintain(policy)
    with pytest.raises(InvalidArgumentError, match=r"fermion\.maintain\."):
        table.set_properties({f"fermion.maintain.{name}": str(policy[name]) for name in policy})
    assert table.refresh().id == 5


def test_a_step_that_fails_is_reported_and_does_not_stop_the_others(table: Table) -> None:
    lost = next(iter(table.inspect.files()["path"].to_pylist()))
    Path(table.location, lost).unlink()
    result = table.maintain()
    assert outcomes(result) == {"compact": "failed", "expire": "done", "remove_orphans": "done"}
    assert not result.ok
    assert lost in result.steps[0].text
    assert result.files == 1


class AtCall(WrappedStore):
    """Does something else once, before the first call of a kind."""

    def __init__(self, path: str, operation: str, other: Any) -> None:
        super().__init__(LocalStore(path, durability="fast"))
        self.operation, self.other = operation, other

    def call(self, operation: str, *arguments: Any) -> Any:
        if operation == self.operation and self.other is not None:
            other, self.other = self.other, None
            other()
        return super().call(operation, *arguments)


def test_what_a_writer_beside_it_prevents_is_left_to_the_next_run(table: Table) -> None:
    """An overwrite takes the inputs of the compaction right before it commits."""
    other = Table.open(table.location)
    store = AtCall(table.location, "create_if_absent", lambda: other.overwrite({"id": [9]}))
    result = Table(store, latest(store)).maintain()
    assert outcomes(result)["compact"] == "left"
    assert result.ok
    assert "concurrent commits" in result.steps[0].text
    assert rows(table) == [9]
    assert outcomes(table.maintain())["compact"] == "done"


def test_two_maintainers_and_a_writer_at_once_lose_no_row(table: Table) -> None:
    """Files are young enough for the orphan policy; the writer appends all the while."""
    stop = threading.Event()
    policy = {"snapshot_age": "1 ms", "snapshots_min": 2}

    def write() -> int:
        writer, number = Table.open(table.location), 100
        while not stop.is_set() or number < 110:
            writer.append({"id": [number]})
            number += 1
        return number

    def maintain() -> list[Any]:
        own = Table.open(table.location)
        return [own.maintain(policy) for _ in range(4)]

    with ThreadPoolExecutor(3) as threads:
        writing = threads.submit(write)
        both = [threads.submit(maintain), threads.submit(maintain)]
        try:
            results = [result for each in both for result in each.result()]
        finally:
            stop.set()
        last = writing.result()
    assert rows(table) == [*range(5), *range(100, last)]
    assert all(result.ok for result in results), [str(result) for result in results]
    assert Table.open(table.location).verify(data=True).ok


class Counting(WrappedStore):
    """Counts calls by name."""

    def __init__(self, path: str) -> None:
        super().__init__(LocalStore(path, durability="fast"))
        self.calls: dict[str, int] = {}

    def call(self, operation: str, *arguments: Any) -> Any:
        self.calls[operation] = self.calls.get(operation, 0) + 1
        return super().call(operation, *arguments)


@pytest.mark.parametrize("files", [1, 50])
def test_an_idle_table_costs_the_same_requests_however_many_files_it_has(
    table_path: Path, files: int
) -> None:
    """No file is opened or looked at by itself, and nothing is written."""
    schema = pa.schema([("id", pa.int64()), ("p", pa.int64())])
    made = Table.create(table_path, schema, partition_by="p", durability="fast")
    made.append({"id": range(files), "p": range(files)})
    made.maintain(AT_ONCE)
    shared_cache.clear()
    store = Counting(made.location)
    result = Table(store, latest(store)).maintain(AT_ONCE)
    assert outcomes(result) == dict.fromkeys(("compact", "expire", "remove_orphans"), "done")
    assert not {"write", "create_if_absent", "delete", "overwrite_hint"} & set(store.calls)
    assert store.calls == IDLE_CALLS
