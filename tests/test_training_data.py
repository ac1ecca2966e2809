"""What docs/recipes/pytorch.md promises: each row once in an epoch, however rows are shared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.documents import DOCS, programs

# Workers import this file too, unless they are forked.
PROGRAM = """
import itertools, warnings
import fermion, numpy as np, pyarrow as pa, torch
from fermion_table import Table
from torch.utils.data import DataLoader
from training_data import FileRows, RowsByNumber, TableRows, tensors

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than processors


def epochs(rows, workers, how, **options):
    with_workers = dict(multiprocessing_context=how, **options) if workers else {}
    loader = DataLoader(rows, batch_size=None, num_workers=workers, **with_workers)
    for epoch in range(2):
        rows.epoch.fill_(epoch)
        yield [x for batch in loader for x in batch["x"].tolist()]
    rows.epoch.fill_(0)
    stopped = list(itertools.islice((len(batch["x"]) for batch in loader), 2))  # early stop
    assert stopped == [7, 7], stopped
    assert sum(len(batch["x"]) for batch in loader) == len(rows.wanted)  # and all again


def check(rows, wanted):
    rows.wanted = wanted
    for how, workers in (("fork", 0), ("fork", 3), ("spawn", 2)):
        first, second = epochs(rows, workers, how, persistent_workers=how == "spawn")
        assert sorted(first) == sorted(second) == wanted, (how, workers)
        assert first != second != wanted, (how, workers)


def main():
    table = Table.create("t", pa.schema([("x", pa.int64())]))
    for start in range(0, 100, 20):
        table.append({"x": range(start, start + 20)})
    table.delete("x = 50")
    scan = table.scan(filter="x < 90")
    list(scan.to_batches())  # files are open, and threads run, when the workers are forked
    table.append({"x": [7]})  # after the scan
    check(TableRows(scan, 7), [x for x in range(90) if x != 50])
    options = fermion.WriteOptions(stripe_rows=15)
    fermion.write_table({"x": range(100)}, "a.fermion", options=options)
    rows = FileRows("a.fermion", ["x"], 7)
    rows.file.read()
    check(rows, list(range(100)))
    for how in ("fork", "spawn"):
        loader = DataLoader(
            RowsByNumber("a.fermion"), batch_size=9, shuffle=True, num_workers=2,
            collate_fn=tensors, multiprocessing_context=how,
        )
        seen = torch.cat([batch["x"] for batch in loader]).tolist()
        assert sorted(seen) == list(range(100)) != seen


if __name__ == "__main__":
    main()
"""


def test_each_row_comes_once_with_any_number_of_workers(
    tmp_path: Path, project_environment: dict[str, str]
) -> None:
    """Of a table and of a file, with forked and spawned workers, in epochs and after a stop."""
    pytest.importorskip("torch", reason="torch is not installed here: DataLoader can't be tried")
    code = programs(DOCS / "recipes" / "pytorch.md")[("torch",)]
    (tmp_path / "training_data.py").write_text(code)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=project_environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
