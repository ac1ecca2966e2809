"""Golden tables of version 1 give the rows they gave, and can be written to."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from fermion_table import Table
from tests.golden.table_features import TABLES
from tests.golden.write_golden_tables import FOLDER, expectations

KEEPING = {"keyed_aggregates", "keyed_parts", "keyed_firsts"}
"""Tables whose merge engines do not delete rows."""


@pytest.mark.parametrize("name", TABLES)
def test_a_golden_table_gives_the_rows_it_gave(name: str) -> None:
    """Every snapshot, tag and branch by value; every byte by its hash."""
    assert expectations(FOLDER / name) == json.loads((FOLDER / f"{name}.json").read_text())
    report = Table.open(FOLDER / name).verify(data=True)
    assert report.ok, report


@pytest.mark.parametrize("name", TABLES)
def test_a_golden_table_can_be_written_to(name: str, tmp_path: Path) -> None:
    """A copy: rows go and come, files are compacted, old snapshots expire."""
    shutil.copytree(FOLDER / name, tmp_path / name)
    table = Table.open(tmp_path / name, durability="fast")
    rows = table.scan().to_arrow()
    if table.scan().entries[0] and table.scan().entries[0][0].batch is None:
        table.append(rows)
        times = 1 if table.scan().key is not None else 2
        assert table.scan().count() == times * rows.num_rows
    table.compact()
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    assert table.scan().count() % max(rows.num_rows, 1) == 0
    if name in KEEPING:
        table.overwrite(rows.slice(0, 0))
    else:
        table.delete("TRUE")
    assert table.scan().count() == 0
    report = table.verify(data=True)
    assert report.ok, report


def test_golden_tables_are_never_changed(project: Path) -> None:
    """No commit touched a file of one after the commit that added it."""
    listing = subprocess.run(
        ["git", "log", "--diff-filter=MD", "--format=", "--name-only", "--", str(FOLDER)],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert listing.stdout.split() == []


def test_every_golden_table_has_a_maker() -> None:
    assert sorted(path.name for path in FOLDER.iterdir() if path.is_dir()) == sorted(TABLES)
