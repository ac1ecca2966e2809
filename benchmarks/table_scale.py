"""Tables, 3 and 4: histories, files and columns by the thousand. Ours alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks import harness, tables
from benchmarks.layers import FAST, FULL, Layer
from benchmarks.question import Action, Case, Question, Size, Target

SNAPSHOTS = {"full": 10_000, "quick": 200, "tiny": 20}
FILES = {"full": 1_000_000, "quick": 10_000, "tiny": 100}
WIDE = {"full": (1_000, 10_000), "quick": (50, 1_000), "tiny": (5, 50)}
COLUMNS = 32
ENTRIES_PER_COMMIT = 20_000


def integers(columns: int) -> pa.Schema:
    """A schema of int64 columns: ``c0``, ``c1`` and so on."""
    return pa.schema([pa.field(f"c{index}", pa.int64()) for index in range(columns)])


def made_up(path: str, files: int, columns: int, *, per_commit: int) -> None:
    """A table of files that need not be there: planning reads metadata alone.

    Every column has bounds in every file; those of file ``n`` are n * 10 to n * 10 + 9.
    """
    from fermion_table import Table
    from fermion_table.metadata.manifest import FieldStatistics
    from fermion_table.writing.writer_message import WriterMessage
    from tests.kit.stores import committed_unseen, made_up_entry

    names = ",".join(f"c{index}" for index in range(columns))
    table = Table.create(
        path, integers(columns), properties={"statistics_columns": names}, durability="fast"
    )
    with table.writer() as writer:  # one real file shows which flags a writer sets
        writer.write(pa.table({name: [0, 9] for name in table.schema.to_arrow().names}))
        (message,) = writer.prepare_commit()
    flags = next(iter(message.entries[0].stats.values())).flags
    for start in range(0, files, per_commit):
        entries = []
        for number in range(start, min(start + per_commit, files)):
            bounds = FieldStatistics(number * 10, number * 10 + 9, 0, flags)
            stats = {field.id: bounds for field in table.schema.fields}
            entries.append(made_up_entry(f"{number:07d}", stats=stats))
        uuid = table.snapshot.table_uuid
        with committed_unseen():
            table.commit([WriterMessage(entries=tuple(entries), table_uuid=uuid)])


def many_files(size: Size) -> str:
    """A table of a million files with statistics of 32 columns."""
    return tables.stored(
        FULL,
        size,
        f"{FILES[size]}-made-up",
        lambda path: made_up(path, FILES[size], COLUMNS, per_commit=ENTRIES_PER_COMMIT),
    )


def plan_many(filter: str | None) -> Case:
    """Open it and plan."""

    def prepare(layer: Layer, size: Size) -> Action:
        path = many_files(size)
        chosen = None if filter is None else filter.format(value=FILES[size] * 5)
        return lambda: {"files": len(layer.open(path).scan(filter=chosen).plan().splits)}

    return Case(prepare)


def plan_wide(layer: Layer, size: Size) -> Action:
    """A thousand files with statistics of ten thousand columns each; one predicate."""
    files, columns = WIDE[size]
    path = tables.stored(
        FULL,
        size,
        "wide",
        lambda path: made_up(path, files, columns, per_commit=max(files // 10, 1)),
    )
    chosen = f"c{columns // 2} = {files * 5}"
    return lambda: {"files": len(layer.open(path).scan(filter=chosen).plan().splits)}


def open_long_history(layer: Layer, size: Size) -> Action:
    """Open a table with ten thousand snapshots, as a process that never saw it."""
    from benchmarks.counting_store import CountingStore

    path = tables.appended(FAST, size, commits=SNAPSHOTS[size], each=1)

    def run() -> dict[str, int]:
        store = CountingStore(path)
        store.open()
        return {"reads": store.reads, "listings": store.calls["list"]}

    return run


def small_append(layer: Layer, size: Size) -> Action:
    """The storage calls of one append to a table that its writer has open."""
    from benchmarks.counting_store import CountingStore

    stored = tables.appended(FAST, size, commits=20, each=10)
    store = CountingStore(tables.copy_of(FAST, size, stored, lambda path: None))
    table = store.open()
    table.append(tables.rows(10))

    def run() -> dict[str, int]:
        store.forget()
        table.append(tables.rows(10))
        return {
            "reads": store.reads,
            "listings": store.calls["list"],
            "objects": sum(store.calls[name] for name in ("write", "create_if_absent")),
            "hints": store.calls["overwrite_hint"],
        }

    return run


def add_columns(layer: Layer, size: Size) -> Action:
    """Ten thousand more columns for a table of a thousand files: what one commit writes."""
    from benchmarks.counting_store import CountingStore

    files, columns = WIDE[size]
    stored = tables.stored(
        FULL, size, "narrow", lambda path: made_up(path, files, 4, per_commit=max(files // 10, 1))
    )
    store = CountingStore(tables.copy_of(FULL, size, stored, lambda path: None))
    table = store.open()
    added: Any = {f"more_{index}": pa.int64() for index in range(columns)}

    def run() -> dict[str, int]:
        before = table.snapshot.id
        store.forget()
        table.add_columns(added)
        return {"commits": table.snapshot.id - before, "written_bytes": store.bytes_written}

    return run


QUESTION = Question(
    module="benchmarks.table_scale",
    title="Tables 3, 4  Histories, files and columns by the thousand",
    cases={
        "small append": Case(small_append),
        "open among 10,000 snapshots": Case(open_long_history),
        "1,000,000 files, one predicate": plan_many("c3 = {value}"),
        "1,000,000 files, all": plan_many(None),
        "1,000 files of 10,000 columns, one predicate": Case(plan_wide),
        "add 10,000 columns": Case(add_columns),
    },
    libraries=(FULL,),
    targets=(
        Target("small append", 2, metric="reads"),
        Target("small append", 0, metric="listings"),
        Target("small append", 1, metric="objects"),
        Target("open among 10,000 snapshots", 3, metric="reads"),
        Target("open among 10,000 snapshots", 0.020),
        Target("1,000,000 files, one predicate", 0.3),
        Target("1,000,000 files, one predicate", 200e6, metric="extra_bytes"),
        Target("1,000,000 files, all", 2.0),
        Target("1,000 files of 10,000 columns, one predicate", 0.030),
        Target("add 10,000 columns", 1, metric="commits"),
        Target("add 10,000 columns", 1e6, metric="written_bytes"),
    ),
    rounds={"full": 3},
    metrics=("files", "reads", "listings", "objects", "commits", "written_bytes"),
    notes="The files of the large tables are made up: planning reads metadata alone. objects: "
    "metadata objects; the data file and the hint come on top.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
