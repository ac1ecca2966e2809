"""Tries the installed packages: a file, a table, the compiled kernels, the command line.

Run it outside of the project's directory, so that what was installed is imported.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

import fermion
import fermion_table


def main() -> None:
    """Write, read, query; raises where something is missing."""
    importlib.import_module("fermion.kernels._compiled")
    rows = pa.table({"id": range(1_000), "name": [f"name {number % 7}" for number in range(1_000)]})
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "rows.fermion")
        fermion.write_table(rows, path)
        assert fermion.read_table(path, filter="id >= 990").num_rows == 10
        table = fermion_table.Table.create(Path(directory, "t"), rows)
        assert table.scan(filter="name = 'name 3'").count() == 143
        assert table.verify(data=True).ok
        for command in (["verify", path], ["table", "log", table.location]):
            subprocess.run([sys.executable, "-m", "fermion", *map(str, command)], check=True)
    print(f"fermion {fermion.__version__} in {Path(fermion.__file__).parent} works")


if __name__ == "__main__":
    main()
