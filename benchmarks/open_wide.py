"""Target 1: what opening a wide file and reading ten of its columns costs."""

from __future__ import annotations

from benchmarks import data, harness
from benchmarks.formats import (
    FEATHER,
    FERMION,
    LANCE,
    ORC,
    PARQUET_ZSTD,
    POLARS,
    VORTEX,
    VORTEX_STRINGS,
    Format,
)
from benchmarks.question import Action, Case, NotOffered, Question, Size, Target

ROWS = {"full": 2_000, "quick": 200, "tiny": 20}
COLUMNS_OF_ALL = 10_000  # above, only the formats that write such a file within minutes


def stored(library: Format, columns: int, size: Size) -> str:
    """The path of a wide table's file."""
    slow = library.name in {VORTEX.name, VORTEX_STRINGS.name, LANCE.name, ORC.name}
    if columns > COLUMNS_OF_ALL and slow:
        raise NotOffered(f"takes minutes to write {columns:,} columns")
    if size == "quick" and columns == COLUMNS_OF_ALL and slow:
        raise NotOffered("left out of quick runs: slow to write so many columns")
    rows = ROWS[size] if columns <= COLUMNS_OF_ALL else ROWS[size] // 10
    return library.stored(f"wide-{columns}x{rows}", size, lambda: data.wide(columns, rows))


def read_ten(columns: int) -> Case:
    """Open a file of so many columns and read ten."""

    def prepare(library: Format, size: Size) -> Action:
        path = stored(library, columns, size)
        names = data.some_names(columns)
        return lambda: library.read(path, names)

    return Case(prepare, calls=5, sizes=sizes(columns))


def open_only(columns: int) -> Case:
    """Open a file of so many columns, no more."""

    def prepare(library: Format, size: Size) -> Action:
        path = stored(library, columns, size)

        def opened() -> None:
            library.open(path)

        library.open(path)  # so that a format without an open of its own says so now
        return opened

    return Case(prepare, calls=5, sizes=sizes(columns))


def sizes(columns: int) -> tuple[Size, ...]:
    """The widest file is for full runs, the narrowest for all."""
    if columns > COLUMNS_OF_ALL:
        return ("full",)
    return ("full", "quick") if columns == COLUMNS_OF_ALL else ("full", "quick", "tiny")


QUESTION = Question(
    module="benchmarks.open_wide",
    title="1  Wide files (float32, int64, string; 2,000 rows): open, and read 10 columns",
    cases={
        "100 columns": read_ten(100),
        "10,000 columns": read_ten(10_000),
        "100,000 columns": read_ten(100_000),
        "10,000 columns, open alone": open_only(10_000),
    },
    libraries=(FERMION, FEATHER, POLARS, ORC, LANCE, VORTEX, PARQUET_ZSTD),
    targets=(
        Target("10,000 columns", 0.001),
        Target("10,000 columns", 1.5, of="100 columns"),
        Target("100,000 columns", 0.0015),
        Target("100,000 columns", 1.5, of="100 columns"),
    ),
    rounds={"full": 3},
    notes="Each process opens anew five times and counts with the median. At 100,000 columns: "
    "200 rows.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
