"""Golden tables of version 1 give the rows they gave, and can be written to."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from fermion_table import Table
from tests.golden.table_features import TABLES
from tests.golden.write_golden_catalogs import FOLDER as CATALOGS
from tests.golden.write_golden_tables import FOLDER, expectations
from tests.kit.golden_archives import SUMS, sums_of

KEEPING = {"keyed_aggregates", "keyed_parts", "keyed_firsts"}
"""Tables whose merge engines do not delete rows."""


@pytest.mark.parametrize("name", TABLES)
def test_a_golden_table_gives_the_rows_it_gave(
    name: str, unpacked: Callable[[Path, str], Path]
) -> None:
    """Every snapshot, tag and branch by value; every byte by its hash."""
    path = unpacked(FOLDER, name)
    assert expectations(path) == json.loads((FOLDER / f"{name}.json").read_text())
    report = Table.open(path).verify(data=True)
    assert report.ok, report


@pytest.mark.parametrize("name", TABLES)
def test_a_golden_table_can_be_written_to(name: str, unpacked: Callable[[Path, str], Path]) -> None:
    """Rows go and come, files are compacted, old snapshots expire."""
    table = Table.open(unpacked(FOLDER, name), durability="fast")
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


@pytest.mark.parametrize("folder", [FOLDER, CATALOGS], ids=["tables", "catalogs"])
def test_archives_hold_the_files_that_were_written(folder: Path) -> None:
    """No file changed, none came without being noted, none went."""
    noted = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    held = [line for path in folder.glob("*.zip") for line in sums_of(path)]
    assert len(noted) >= 100
    assert sorted(held) == sorted(noted)


@pytest.mark.parametrize("folder", [FOLDER, CATALOGS], ids=["tables", "catalogs"])
def test_archives_and_their_rows_are_never_changed(folder: Path, project: Path) -> None:
    """No commit touched one after the commit that added it."""
    name = folder.relative_to(project).as_posix()
    listing = subprocess.run(
        ["git", "log", "--diff-filter=MD", "--format=", "--name-only", "--",
         f":(glob){name}/*.zip", f":(glob){name}/*.json"],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert listing.stdout.split() == []


def test_every_golden_table_has_a_maker() -> None:
    """And is an archive: a directory would not be looked at."""
    assert sorted(path.stem for path in FOLDER.glob("*.zip")) == sorted(TABLES)
    assert [path.name for path in FOLDER.iterdir() if path.is_dir()] == []
