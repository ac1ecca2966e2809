"""Processes killed with SIGKILL before each change of a file leave the old state or the new."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from fermion_table import Table
from fermion_table.storage.cache import shared_cache
from tests.kit.tables.crash_operations import AT_ONCE, KEYED_OPERATIONS, OPERATIONS, Signaller

CHANGE_NO_ROWS = (
    *("compaction", "expiry", "maintenance", "clone"),
    *("compaction of runs", "full compaction of runs"),
)
STEP_SAMPLED = 9
"""CI kills at every ninth change of a file, from another one on for each operation."""

State = tuple[list[int], int, list[str]]


def state(path: Path) -> State:
    """The values of a column, the number of columns, and all rows."""
    table = Table.open(path)
    found = table.scan(threads=1).to_arrow()
    return (
        sorted(found["v"].to_pylist()),
        found.num_columns,
        sorted(map(str, found.to_pylist())),
    )


def check_survivor(path: Path, before: State, after: State) -> bool:
    """Whether the killed operation was published; whichever, the table has to be whole."""
    shared_cache.clear()
    table = Table.open(path)
    found = state(path)
    assert found in (before, after)
    for snapshot in table.snapshots():
        table.scan(snapshot_id=snapshot.id, threads=1).to_arrow()
    report = table.verify(data=True)
    assert report.ok, report
    published = table.snapshot.id
    table.append({"k": ["later"], "v": [1000]})
    rows = [*found[0], 1000]
    assert state(path)[0] == rows
    table.remove_orphan_files(older_than=AT_ONCE)
    assert table.remove_orphan_files(older_than=AT_ONCE, dry_run=True).paths == ()
    assert state(path)[0] == rows
    report = Table.open(path).verify(data=True)
    assert report.ok, report
    return found == after and published > 0


def kill_everywhere(
    name: str, template: Path, tmp_path: Path, signaller: Signaller, numbers: Iterable[int]
) -> list[bool]:
    """Kill at some changes of files; whether each was published."""
    before = state(template)
    done = tmp_path / "done"
    shutil.copytree(template, done)
    assert not signaller.run(name, 0, "SIGKILL", done)
    after = state(done)
    clones = [sorted(range(1, 16))]
    outcomes = []
    for _, path in signaller.run_until_done(name, numbers, "SIGKILL", template, tmp_path):
        clone = Path(f"{path}-clone")
        if Table.exists(clone):
            assert state(clone)[0] in ([], *clones)
            assert Table.open(clone).verify(data=True).ok
        outcomes.append(check_survivor(path, before, after))
        if Table.exists(clone):  # after the maintenance of its source
            assert state(clone)[0] in ([], *clones)
        shutil.rmtree(clone, ignore_errors=True)
    if name not in CHANGE_NO_ROWS:
        assert before != after
        assert outcomes == sorted(outcomes), "once published, it stays"
        assert outcomes[-1]
    return outcomes


@pytest.mark.long
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_killed_process_leaves_the_old_state_or_the_new(
    name: str, template: Path, tmp_path: Path, signaller: Signaller
) -> None:
    """Killed before every ninth change of a file; the next commit and maintenance work."""
    first = 1 + sorted(OPERATIONS).index(name) % STEP_SAMPLED
    numbers = range(first, 1000, STEP_SAMPLED)
    assert len(kill_everywhere(name, template, tmp_path, signaller, numbers)) > 1


@pytest.mark.long
@pytest.mark.parametrize("name", KEYED_OPERATIONS)
def test_a_killed_process_leaves_a_primary_key_table_whole(
    name: str, keyed_template: Path, tmp_path: Path, signaller: Signaller
) -> None:
    """The same of a primary-key table."""
    first = 1 + sorted(KEYED_OPERATIONS).index(name) % STEP_SAMPLED
    numbers = range(first, 1000, STEP_SAMPLED)
    assert len(kill_everywhere(name, keyed_template, tmp_path, signaller, numbers)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_process_killed_anywhere_leaves_the_old_state_or_the_new(
    name: str, template: Path, tmp_path: Path, signaller: Signaller
) -> None:
    """Killed before every change of a file."""
    outcomes = kill_everywhere(name, template, tmp_path, signaller, range(1, 1000))
    print("soak:", json.dumps({f"points of {name}": len(outcomes) - 1}))


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYED_OPERATIONS)
def test_a_process_killed_anywhere_leaves_a_primary_key_table_whole(
    name: str, keyed_template: Path, tmp_path: Path, signaller: Signaller
) -> None:
    """Killed before every change of a file."""
    outcomes = kill_everywhere(name, keyed_template, tmp_path, signaller, range(1, 1000))
    print("soak:", json.dumps({f"points of {name}": len(outcomes) - 1}))
