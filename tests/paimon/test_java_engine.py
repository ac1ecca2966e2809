"""Primary-key tables return what Paimon's Java engine returns, after each of drawn commits.

Both systems carry out the same commits, each with compactions of its own. The library comes from
Maven Central into an environment of its own: `make test-paimon` installs it and runs these tests.
PAIMON_HISTORIES is the number of histories of each case.
"""

from __future__ import annotations

import os
from itertools import pairwise

import pytest

from tests.paimon.differences import DIFFERENCES
from tests.paimon.drawn_histories import FAMILIES, PRODUCED, drawn
from tests.paimon.environment import SECONDS_MAX, carried_out
from tests.paimon.our_tables import (
    comparable_rows,
    counted,
    create,
    effective,
    our_changes,
    paimons_changes,
    paimons_rows,
    replayed,
    step,
)

HISTORIES = int(os.environ.get("PAIMON_HISTORIES", "4"))
PRODUCERS = [(name, each) for name, producers in PRODUCED.items() for each in producers]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS_MAX)]


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, dict]:
    """All histories with what Paimon returned, by name; one process of Java for all of them."""
    cases = [*((name, None) for name in FAMILIES), *PRODUCERS]
    histories = [drawn(name, at, each) for name, each in cases for at in range(HISTORIES)]
    histories += [each.history(name) for name, each in DIFFERENCES.items()]
    scratch = tmp_path_factory.mktemp("paimon")
    return carried_out("java_engine.py", "paimon-bundle-*.jar", histories, scratch)


def result_of(results: dict[str, dict], name: str, number: int, producer: str | None) -> dict:
    history = results[drawn(name, number, producer)["name"]]
    assert history["error"] is None, history["name"]
    return history


@pytest.mark.parametrize("name", FAMILIES)
def test_scans_return_what_paimon_returns_after_each_commit(name, results, tmp_path):
    """Every snapshot again at the end, too."""
    unordered = FAMILIES[name].unordered
    for number in range(HISTORIES):
        history = result_of(results, name, number, None)
        table = create(history, tmp_path / str(number))
        snapshots = {}
        for at, expected in enumerate(history["expected_after"]):
            step(table, history, at)
            snapshots[table.snapshot.id] = paimons_rows(expected, history, unordered)
            found = comparable_rows(table.scan().to_arrow().to_pylist(), history, unordered)
            assert found == snapshots[table.snapshot.id], (history["name"], at)
        for snapshot, wanted in snapshots.items():
            rows = table.scan(snapshot_id=snapshot).to_arrow().to_pylist()
            assert comparable_rows(rows, history, unordered) == wanted, (history["name"], snapshot)


@pytest.mark.parametrize("records", [False, True], ids=["computed", "recorded"])
@pytest.mark.parametrize(("name", "producer"), PRODUCERS)
def test_changes_are_those_of_paimons_changelog(name, producer, records, results, tmp_path):
    """Both replay to the next state; recorded changes are the same rows, updates to the same too.

    Computed ones are compared without such updates, and only replayed for a changelog of the input.
    """
    for number in range(HISTORIES):
        history = result_of(results, name, number, producer)
        table = create(history, tmp_path / str(number), records=records)
        states, snapshots = [[]], [table.snapshot.id]
        for at, expected in enumerate(history["expected_after"]):
            step(table, history, at)
            states.append(paimons_rows(expected, history))
            snapshots.append(table.snapshot.id)
            found = comparable_rows(table.scan().to_arrow().to_pylist(), history)
            assert found == states[-1], (history["name"], at)
        for at, (start, end) in enumerate(pairwise(snapshots)):
            before = table.scan(snapshot_id=start).to_arrow().to_pylist()
            ours = our_changes(table, start, end)
            theirs = paimons_changes(history["changes"][at], history)
            for changes in (ours, theirs):
                after = comparable_rows(replayed(before, changes, history["primary_key"]), history)
                assert after == states[at + 1], (history["name"], at)
            if records:
                assert counted(ours) == counted(theirs), (history["name"], at)
            elif producer != "input":
                same = effective(counted(ours)) == effective(counted(theirs))
                assert same, (history["name"], at, ours, theirs)


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_that_drawn_histories_avoid_is_still_there(name, results, tmp_path):
    """Where this fails for Paimon, a newer version may no longer need to be avoided."""
    difference, history = DIFFERENCES[name], results[name]
    assert history["error"] is None
    table = create(history, tmp_path / "table")
    for at in range(len(history["commits"])):
        step(table, history, at)
    ours = comparable_rows(table.scan().to_arrow().to_pylist(), history)
    expected = [difference.ours, difference.paimons]
    rows = [[] if row is None else paimons_rows([{"k": 1, **row}], history) for row in expected]
    assert ours == rows[0]
    assert paimons_rows(history["expected_after"][-1], history) == rows[1]
    assert rows[0] != rows[1]
