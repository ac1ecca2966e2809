"""Consumers keep what they have yet to read, wherever they and expiries stop."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path

import pytest

from fermion import InvalidArgumentError
from fermion_table import CorruptMetadata, Table, UnsupportedFeature, VersionNotFound, drop_table
from fermion_table.metadata import consumers
from fermion_table.storage.location import open_store
from fermion_table.table.copying import copy_table

AT_ONCE = timedelta(days=-1)


@pytest.fixture
def table(table_path: Path) -> Table:
    """Snapshot n appends the row n."""
    table = Table.create(table_path, {"v": [1]}, durability="fast")
    for number in range(2, 9):
        table.append({"v": [number]})
    return table


def expire(table: Table, retain_last: int = 1) -> None:
    table.expire_snapshots(older_than=AT_ONCE, retain_last=retain_last)


def kept(table: Table) -> list[int]:
    return [each.id for each in table.snapshots() if each.id]


def files(table: Table) -> list[str]:
    return sorted(item.path for item in table.store.list("consumers"))


@pytest.mark.parametrize("seed", range(5))
def test_expiry_keeps_what_a_model_of_the_consumers_says(table, seed):
    """The model is a dict of positions; of each the changes that follow can be read."""
    chosen = random.Random(seed)
    model: dict[str, int] = {}
    first = 1
    for _ in range(12):
        what, name = chosen.random(), chosen.choice("abc")
        last = table.snapshot.id
        if what < 0.3:
            table.append({"v": [last + 1]})
        elif what < 0.6:
            model[name] = chosen.randint(first, last)
            assert table.consumers.record(name, version=model[name]).snapshot_id == model[name]
        elif what < 0.7 and name in model:
            table.consumers.delete(name)
            del model[name]
        else:
            retained = chosen.randint(1, 3)
            expire(table, retained)
            first = max(first, min([last + 1 - retained, *model.values()]))
            assert kept(table) == list(range(first, last + 1))
        listed = {each.name: each.snapshot_id for each in table.consumers.list()}
        assert listed == model
        for position in model.values():
            rows = table.scan_changes(position).to_arrow()["v"].to_pylist()
            assert rows == list(range(position + 1, table.snapshot.id + 1))


def test_a_consumer_is_shown_by_inspect_and_has_one_file(table):
    table.consumers.record("report", version=3)
    table.consumers.record("report", version=5)
    (path,) = files(table)
    assert path.startswith(f"consumers/report/{5:020d}-")
    (row,) = table.inspect.consumers().to_pylist()
    assert (row["name"], row["snapshot_id"], row["branch"]) == ("report", 5, "main")
    assert "report" in table.consumers
    assert "report" in repr(table.consumers)


def test_the_same_position_is_recorded_again_only_after_a_while(table, monkeypatch):
    """So that it shows that the consumer lives, at few requests."""
    table.consumers.record("report", version=3)
    before = files(table)
    table.consumers.record("report", version=3)
    assert files(table) == before
    monkeypatch.setattr(consumers, "REFRESH_MS", 0)
    table.consumers.record("report", version=3)
    (after,) = files(table)
    assert after > before[0]


def test_a_consumer_that_stops_before_it_deletes_its_old_position_keeps_both(table, monkeypatch):
    """And is at the new one; the next record deletes both of the older files."""
    table.consumers.record("report", version=3)

    def stopped(store, path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(table.store), "delete", stopped)
        with pytest.raises(KeyboardInterrupt):
            table.consumers.record("report", version=6)
    assert [each.snapshot_id for each in table.consumers.list()] == [6]
    expire(table)
    assert kept(table)[0] == 3
    table.consumers.record("report", version=7)
    assert len(files(table)) == 1
    expire(table)
    assert kept(table)[0] == 7


def test_a_consumer_at_an_expired_snapshot_is_refused_and_names_it(table):
    expire(table)
    with pytest.raises(VersionNotFound, match="no snapshot 2"):
        table.consumers.record("report", version=2)
    assert files(table) == []


def test_a_snapshot_that_expires_while_it_is_recorded_is_refused_and_names_it(table, monkeypatch):
    """The expiry lies between the look at the snapshot and the new file."""
    snapshot = table.scan(snapshot_id=2).snapshot
    expire(table)
    with pytest.raises(VersionNotFound, match="'report': snapshot 2 has expired"):
        consumers.record(table.store, "report", snapshot)
    assert files(table) == []


def test_a_consumer_that_is_silent_for_too_long_is_forgotten(table, monkeypatch):
    table.set_properties({"consumer.expiration_time": "30 d"})
    table.consumers.record("report", version=3)
    expire(table)
    assert kept(table)[0] == 3
    later = consumers.now_ms() + 31 * 86_400_000
    monkeypatch.setattr("fermion_table.table.maintenance.now_ms", lambda: later)
    shown = table.expire_snapshots(older_than=AT_ONCE, retain_last=1, dry_run=True)
    assert (shown.consumers, len(files(table))) == (1, 1)
    result = table.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    assert result.consumers == 1
    assert files(table) == []
    assert kept(table) == [table.snapshot.id]


def test_a_consumer_of_a_branch_keeps_snapshots_of_that_branch_alone(table):
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev")
    for number in range(3):
        dev.append({"v": [number]})
    position = dev.consumers.record("report", version=dev.snapshot.id - 1)
    assert position.branch == "dev"
    dev.append({"v": [9]})
    expire(dev)
    expire(table)
    assert dev.scan_changes(position.snapshot_id).count() == 2
    assert kept(table) == [8]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"format": "fermion-tag"}, CorruptMetadata),
        ({"format_version": 2}, UnsupportedFeature),
        ({"snapshot_id": 4}, CorruptMetadata),
        ({"name": "other"}, CorruptMetadata),
    ],
)
def test_a_position_that_can_not_be_read_stops_expiry(table, changed, error):
    """As what is still needed is not known; its deletion by hand helps."""
    table.consumers.record("report", version=3)
    (path,) = files(table)
    file = Path(table.location) / path
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
    for call in (table.consumers.list, lambda: expire(table)):
        with pytest.raises(error, match="consumers/report/"):
            call()
    assert kept(table)[0] == 1
    file.unlink()
    expire(table)
    assert kept(table) == [8]


def test_names_of_consumers_are_checked(table):
    for name in ("", "7", "a/b", ".a", "a.tmp"):
        with pytest.raises(InvalidArgumentError, match="consumer name"):
            table.consumers.record(name)
    table.consumers.record("report")
    with pytest.raises(InvalidArgumentError, match="no consumer 'reprot'; there are: 'report'"):
        table.consumers.delete("reprot")


def test_orphans_copies_and_drops_treat_positions_as_what_they_are(table, tmp_path):
    """Removal of orphan files leaves them, copies lack them, and a drop leaves nothing."""
    table.consumers.record("report", version=3)
    table.remove_orphan_files(older_than=AT_ONCE)
    assert len(files(table)) == 1
    copy_table(table.store, open_store(tmp_path / "copy"))
    assert Table.open(tmp_path / "copy").consumers.list() == []
    assert table.verify().ok
    dropped = drop_table(table.location)
    assert dropped.left == ()
    assert not Path(table.location).exists()
