"""`fermion table expire` and `remove-orphans`: what went."""

from __future__ import annotations

import gc
from typing import Any

import pyarrow as pa

from fermion_table import Table


def test_expire_and_orphans_say_what_went(run: Any, json_of: Any, table: Table) -> None:
    planned = run("expire", "--older-than", "2100-01-01", "--retain-last", 1, "--dry-run")
    assert planned.startswith("would delete 4 snapshots, 1 data file")
    assert "\n  data/" in planned
    done = json_of("expire", "--older-than", "2100-01-01", "--retain-last", 1)
    assert (done["snapshots"], done["files"], done["dry_run"]) == (4, 1, False)
    assert run("expire", "--older-than", "1h") == "deleted nothing (0 bytes)\n"
    with table.writer() as writer:
        writer.write(pa.table({"id": [1]}))
        writer.prepare_commit()
    del writer  # whoever holds a writer keeps its files
    gc.collect()
    assert run("remove-orphans", "--older-than", "12h") == "would delete nothing (0 bytes)\n"
    planned = run("remove-orphans", "--older-than", "2100-01-01")
    assert planned.startswith("would delete 1 data file")
    assert planned.endswith("nothing was deleted; --yes deletes them\n")
    assert json_of("remove-orphans", "--older-than", "2100-01-01", "--yes")["files"] == 1
    assert run("remove-orphans", "--older-than", "12h", "--yes").startswith("deleted nothing")
    assert "expected an age" in run("expire", "--older-than", "soon", status=2)
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev")
    dev.append({"id": [1]})
    dev.append({"id": [2]})
    said = run("expire", "--branch", "dev", "--older-than", "2100-01-01", "--retain-last", 1)
    assert said.startswith("deleted 1 snapshots")
