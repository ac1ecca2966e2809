"""Tables, 5: compacting a thousand files of ten thousand rows."""

from __future__ import annotations

from benchmarks import harness, tables
from benchmarks.layers import DELTA, FULL, LANCE_TABLE, PAIMON, Layer
from benchmarks.question import Action, Case, Question, Size, Target

SHAPE = {"full": (1_000, 10_000), "quick": (50, 1_000), "tiny": (4, 100)}


def compact(layer: Layer, size: Size) -> Action:
    """Open the table and compact it."""
    commits, each = SHAPE[size]
    path = tables.copy_of(
        layer,
        size,
        tables.appended(layer, size, commits=commits, each=each),
        lambda target: tables.append_all(layer, target, commits, each),
    )
    return lambda: layer.compact(layer.open(path))


QUESTION = Question(
    module="benchmarks.table_compaction",
    title="Tables 5  Compact 1,000 files of 10,000 rows",
    cases={"compact": Case(compact)},
    libraries=(FULL, DELTA, LANCE_TABLE, PAIMON),
    targets=(Target("compact", 1.0, of=DELTA.name),),
    rounds={"full": 3},
    notes="pypaimon compacts by its Java engines only.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
