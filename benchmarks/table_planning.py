"""Tables, 2: opening a table of many files afresh and planning a scan."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import harness, tables
from benchmarks.layers import DELTA, FULL, ICEBERG, LANCE_TABLE, PAIMON, Layer
from benchmarks.question import Action, Case, Question, Size, Target

ROWS_EACH = 10
FILES_MAX = {"quick": 100, "tiny": 20}


def made(files: int) -> Callable[[Layer, str], None]:
    """Make a table of so many files, by ten commits."""

    def make(layer: Layer, path: str) -> None:
        layer.create(path, tables.rows(0).schema)
        part = max(files // 10, 1)
        for start in range(0, files, part):
            numbers = range(start, min(start + part, files))
            layer.append_files(path, [tables.rows(ROWS_EACH, n * ROWS_EACH) for n in numbers])

    return make


def plan(files: int, *, one: bool) -> Case:
    """Open and plan; ``one``: only the files that may hold one id."""

    def prepare(layer: Layer, size: Size) -> Action:
        count = min(files, FILES_MAX.get(size, files))
        name = f"{count}-files"
        path = tables.stored(layer, size, name, lambda path: made(count)(layer, path))
        value = count * ROWS_EACH // 2 if one else None
        return lambda: {"files": layer.plan(layer.open(path), value)}

    sizes: tuple[Size, ...] = ("full", "quick", "tiny") if files <= 1_000 else ("full",)
    return Case(prepare, sizes=sizes)


QUESTION = Question(
    module="benchmarks.table_planning",
    title="Tables 2  Open afresh and plan: all files, and those that may hold one id",
    cases={
        "1,000 files, all": plan(1_000, one=False),
        "1,000 files, one id": plan(1_000, one=True),
        "10,000 files, all": plan(10_000, one=False),
        "10,000 files, one id": plan(10_000, one=True),
    },
    libraries=(FULL, LANCE_TABLE, DELTA, ICEBERG, PAIMON),
    targets=(
        Target("1,000 files, all", 0.005),
        Target("1,000 files, one id", 0.005),
        Target("10,000 files, all", 0.015),
        Target("10,000 files, one id", 0.015),
    ),
    rounds={"full": 5},
    metrics=("files",),
    notes="files: what the plan holds. Lance keeps no bounds of ids: it names all its files. "
    "deltalake lists fragments through its pyarrow data set.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
