"""Tables, 7: one batch by its id, among ten million in a thousand files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks import harness, tables
from benchmarks.layers import FULL, Layer
from benchmarks.question import Action, Case, Question, Size, Target

SHAPE = {"full": (1_000, 10_000), "quick": (100, 100), "tiny": (5, 10)}
CALLS = 10


def make(path: str, files: int, batches: int) -> None:
    """Files of one-row batches. One of them is real; lookups ask for batches of that one."""
    import msgspec

    from fermion_table import Table
    from tests.kit.stores import committed_unseen

    schema = pa.schema([("id", pa.int64()), ("value", pa.float64())])
    table = Table.create(path, schema, durability="fast")
    first = real(files, batches)
    rows = pa.table({"id": np.arange(first, first + batches), "value": np.zeros(batches)})
    with table.writer() as writer:
        for offset in range(batches):
            writer.append_batch(first + offset, rows.slice(offset, 1))
        (message,) = writer.prepare_commit()
    (entry,) = message.entries
    entries = []
    for number in range(files):
        start = number * batches
        if start == first:
            entries.append(entry)
            continue
        bounds = msgspec.structs.replace(entry.batch, min=start, max=start + batches - 1)
        path = f"data/made-up-{number}.fermion"
        entries.append(msgspec.structs.replace(entry, path=path, batch=bounds))
    with committed_unseen():
        table.commit([msgspec.structs.replace(message, entries=tuple(entries))])


def real(files: int, batches: int) -> int:
    """The first batch id of the file that is there."""
    return files // 2 * batches


def lookup(layer: Layer, size: Size) -> Action:
    """The table is open, and one other batch was looked up."""
    files, batches = SHAPE[size]
    path = tables.stored(layer, size, "batches", lambda path: make(path, files, batches))
    table = layer.open(path)
    ids = iter(np.random.default_rng(1).integers(0, batches, CALLS + 1) + real(files, batches))
    table.lookup_batch(int(next(ids)))
    return lambda: table.lookup_batch(int(next(ids)))


QUESTION = Question(
    module="benchmarks.table_batches",
    title="Tables 7  One of 10,000,000 batches in 1,000 files by its id, warm",
    cases={"lookup": Case(lookup, calls=CALLS)},
    libraries=(FULL,),
    targets=(Target("lookup", 0.005),),
    rounds={"full": 5},
    notes="One of the thousand files is real, with 10,000 batches; the others are metadata alone.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
