"""Target 2: reading ten columns of a wide file over a store with 20 ms latency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks import data, harness, open_wide
from benchmarks.formats import FEATHER, FERMION, PARQUET_ZSTD, Format
from benchmarks.question import Action, Case, Library, NotOffered, Question, Size, Target
from benchmarks.slow_store import slow_file_system


@dataclass(frozen=True)
class Remote(Library):
    """A format over the slow store.

    Attributes
    ----------
    local
        The format.
    prefetch_bytes
        What the first request reads; None: the library's default.
    """

    local: Format = FERMION
    prefetch_bytes: int | None = None

    def warm_up(self) -> None:
        self.local.warm_up()

    def read(self, path: str, names: list[str]) -> Any:
        """Ten columns of a file of the store."""
        raise NotOffered("no way to read through a file system of ours")


class RemoteFermion(Remote):
    """By its URL."""

    def read(self, path: str, names: list[str]) -> Any:
        import fermion

        options = fermion.ReadOptions(prefetch_bytes=self.prefetch_bytes)
        with fermion.open(f"slow://{path}", options=options) as file:
            return file.read(names)


class RemoteParquet(Remote):
    """By pyarrow, with its own pre-buffering of ranges."""

    def read(self, path: str, names: list[str]) -> Any:
        import pyarrow.parquet as pq

        return pq.read_table(path, columns=names, filesystem=slow_file_system(), pre_buffer=True)


class RemoteFeather(Remote):
    """By pyarrow, through a file object."""

    def read(self, path: str, names: list[str]) -> Any:
        import pyarrow.feather as feather

        with slow_file_system().open(path) as file:
            return feather.read_table(file, columns=names)


def ten_columns(columns: int, *, adjacent: bool = False) -> Case:
    """Open a file of so many columns and read ten, side by side or spread over it."""

    def prepare(library: Remote, size: Size) -> Action:
        path = open_wide.stored(library.local, columns, size)
        names = data.adjacent_names(columns) if adjacent else data.some_names(columns)
        stored = stored_bytes(path, names) if library.own else None
        store = slow_file_system()

        def read() -> dict[str, Any]:
            requests, rounds, before = store.requests, store.rounds, store.bytes_read
            table = library.read(path, names)
            read = store.bytes_read - before
            return {
                "rows": table.num_rows,
                "columns": table.num_columns,
                "requests": store.requests - requests,
                "rounds": store.rounds - rounds,
                "read_bytes": read,
                "beyond_bytes": None if stored is None else read - stored,
            }

        return read

    return Case(prepare, sizes=open_wide.sizes(columns))


def stored_bytes(path: str, names: list[str]) -> int:
    """Bytes that the pages of some columns take in a Fermion file."""
    import fermion

    with fermion.open(path) as file:
        return sum(stream.length for name in names for stream in file.column(name).streams)


QUESTION = Question(
    module="benchmarks.slow_storage",
    title="2  Wide files over a store with 20 ms latency: open and read 10 columns",
    cases={
        "100 columns": ten_columns(100),
        "10,000 columns": ten_columns(10_000),
        "100,000 columns": ten_columns(100_000),
        "10,000 columns, ten adjacent": ten_columns(10_000, adjacent=True),
    },
    libraries=(
        RemoteFermion("fermion", FERMION.modules, "fermion", own=True),
        RemoteFermion(
            "fermion 2 MiB first",
            FERMION.modules,
            "fermion",
            own=True,
            prefetch_bytes=2 * 2**20,
        ),
        RemoteParquet("parquet zstd", PARQUET_ZSTD.modules, "pyarrow", local=PARQUET_ZSTD),
        RemoteFeather("feather", FEATHER.modules, "pyarrow", local=FEATHER),
    ),
    targets=(
        Target("10,000 columns", 2, metric="rounds"),
        Target("10,000 columns", 2, metric="rounds", measured="fermion 2 MiB first"),
        Target("10,000 columns", 128 * 1024, metric="beyond_bytes"),
        Target("100,000 columns", 3, metric="rounds"),
        Target("100,000 columns", 3, metric="rounds", measured="fermion 2 MiB first"),
        Target("100,000 columns", 128 * 1024, metric="beyond_bytes"),
        Target("10,000 columns, ten adjacent", 3, metric="requests"),
        Target("10,000 columns, ten adjacent", 128 * 1024, metric="beyond_bytes"),
    ),
    rounds={"full": 3},
    metrics=("requests", "rounds", "read_bytes", "beyond_bytes"),
    notes="The ten are spread over the file but where they are called adjacent. A look at a file's "
    "size is a request. Rounds: how often a reader waits for answers before it asks again. Beyond "
    "bytes: read, less the stored pages of the ten columns. Polars, Vortex and Lance bring stores "
    "of their own, which this one cannot slow.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
