"""The modules that the first use in a process loads, for each of the most frequent uses.

``python -m tests.kit.loaded_modules`` writes the list anew, beside this module.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa

import fermion
from fermion_table import Table
from tests.kit.processes import modules_after

LIST = Path(__file__).with_suffix(".json")
USES = {
    "import": "import fermion, fermion_table",
    "read a file": "import fermion; fermion.read_table('a.fermion', columns=['x'])",
    "read some rows of a file": (
        "import fermion; fermion.read_table('a.fermion', columns=['y'], filter='x > 5')"
    ),
    "write a file": (
        "import fermion, pyarrow as pa\n"
        "buffer = pa.py_buffer(bytes(80))\n"
        "rows = pa.table([pa.Array.from_buffers(pa.int64(), 10, [None, buffer])], ['x'])\n"
        "fermion.write_table(rows, 'written.fermion')"
    ),
    "read a table": "from fermion_table import Table; Table.open('t').scan().to_arrow()",
    "read some rows of a table": (
        "from fermion_table import Table\n"
        "Table.open('t').scan(columns=['y'], filter='x BETWEEN 5 AND 7.5').to_arrow()"
    ),
    "read rows of some texts of a table": (
        "from fermion_table import Table\n"
        "Table.open('t').scan(columns=['x'], filter=\"y IN ('5', '7')\").to_arrow()"
    ),
    "look up a key": "from fermion_table import Table; Table.open('keyed').lookup([5])",
    "look up a text": "from fermion_table import Table; Table.open('texts').lookup(['5'])",
    "upsert to a table, and read it": (
        "import fermion\n"
        "from fermion_table import Table\n"
        "table = Table.open('keyed')\n"
        "table.upsert(fermion.read_table('a.fermion'))\n"
        "table.scan().to_arrow()"
    ),
    "change rows by their keys, and compact": (
        "from fermion_table import Table\n"
        "table = Table.open('texts')\n"
        "table.update(\"y = '5'\", {'x': 6})\n"
        "table.delete_keys(['5'])\n"
        "table.compact(full=True)"
    ),
    "append to a table": (
        "import fermion\n"
        "from fermion_table import Table\n"
        "Table.open('t').append(fermion.read_table('a.fermion'))"
    ),
    "take blobs of a table": (
        "from fermion_table import Table; Table.open('blobs').scan().take([5, 3])"
    ),
    "read a range of a blob": (
        "from fermion_table import Table\n"
        "Table.open('blobs').scan(blobs='handles').to_arrow()['b'][0].as_py().read(5, 5)"
    ),
    "head of a file": "from fermion.cli import main; main(['head', 'a.fermion', '-n', '0'])",
}
"""What is run in a directory with a file, a table, one with blobs, and two with a primary key."""
SLOW = {
    "asyncio",
    "duckdb",
    "fsspec",
    "multiprocessing",
    "pandas",
    "polars",
    "rich",
    "sqlglot",
    "ssl",
}
"""What takes long to import, and what is used seldom."""
OTHERS = {
    "json",
    "logging",
    "mmh3",
    "msgspec",
    "numpy.ma",
    "numpy.typing",
    "pcodec",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyroaring",
    "sortedcontainers",
    "xxhash",
    "zstandard",
    *SLOW,
}


def make(folder: Path) -> None:
    """The file and the tables that the uses are of."""
    rows = pa.table({"x": range(100), "y": [str(number) for number in range(100)]})
    fermion.write_table(rows, folder / "a.fermion")
    Table.create(folder / "t", rows, durability="fast")
    for name, key in (("keyed", "x"), ("texts", "y")):
        Table.create(folder / name, rows, primary_key=[key], durability="fast")
    blobs = pa.field("b", pa.binary(), metadata={"fermion:blob": "true"})
    values = pa.table({"b": [b"b" * 5_000] * 9}, schema=pa.schema([blobs]))
    Table.create(folder / "blobs", values, durability="fast")


def loaded(use: str, folder: Path) -> list[str]:
    """Our modules, and those of `OTHERS` that are loaded; sorted."""
    modules = modules_after(f"import os; os.chdir({str(folder)!r})\n{USES[use]}")
    return sorted(
        module
        for module in modules
        if module in OTHERS or module.partition(".")[0] in ("fermion", "fermion_table")
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        make(Path(made))
        found = {use: loaded(use, Path(made)) for use in USES}
    LIST.write_text(json.dumps(found, indent=1) + "\n")
    print({use: len(modules) for use, modules in found.items()})
