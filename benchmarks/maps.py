"""What one key of a map column costs, beside a real column, and all maps, read and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from benchmarks import data, harness
from benchmarks.files import remove, size_of
from benchmarks.formats import LANCE, PARQUET_ZSTD, Fermion, Format
from benchmarks.layers import PAIMON
from benchmarks.question import Action, Case, NotOffered, Question, Size, Target

ROWS = {"full": 10_000, "quick": 1_000, "tiny": 20}
KEYS = {"full": 2_000, "quick": 2_000, "tiny": 30}
MANY = {"full": 100_000, "quick": 10_000, "tiny": 100}


PAIMON_KEYS_MAX = 10_000
"""Of a row: pypaimon gives each key of a row a column in Python."""


@dataclass(frozen=True)
class FermionShredded(Fermion):
    """Ours, with a column for each key."""

    def write(self, table: Any, path: str) -> None:
        import fermion

        shred = {each.name: fermion.Shred() for each in table.schema if pat.is_map(each.type)}
        fermion.write_table(table, path, durable=False, shred=shred)


@dataclass(frozen=True)
class PaimonShredded(Format):
    """Paimon's shared shredding, with as many columns as a row has keys at most."""

    modules: tuple[str, ...] = ("pypaimon",)
    package: str = "pypaimon"
    python: str | None = ".venv-bench-paimon"

    def write(self, table: Any, path: str) -> None:
        from pypaimon import CatalogFactory, Schema

        options = {"file.format": "parquet", "bucket": "-1"}
        for name in (each.name for each in table.schema if pat.is_map(each.type)):
            widest = int(max(np.diff(table[name].combine_chunks().offsets.to_numpy())))
            if widest > PAIMON_KEYS_MAX:
                raise NotOffered(f"minutes for ten rows of {widest:,} keys")
            options[f"fields.{name}.map.storage-layout"] = "shared-shredding"
            options[f"fields.{name}.map.shared-shredding.max-columns"] = str(widest)
        remove(Path(path))
        catalog = CatalogFactory.create({"warehouse": path})
        catalog.create_database("n", True)
        schema = Schema.from_pyarrow_schema(table.schema, options=options)
        catalog.create_table("n.t", schema, True)
        PAIMON.append(catalog.get_table("n.t"), table)

    def read(self, path: str, columns: Sequence[str] | None = None) -> Any:
        builder = PAIMON.open(path).new_read_builder()
        if columns is not None:
            builder = builder.with_projection(list(columns))
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())


FERMION = FermionShredded("fermion")
FERMION_WHOLE = Fermion("fermion whole maps")
PAIMON_SHREDDED = PaimonShredded("pypaimon (10 % of rows)", one_in=10)


def features(rows: int, keys: int) -> pa.Table:
    """Maps that have four of five keys, and a real column like one of them."""
    random = np.random.default_rng(data.SEED)
    has = random.random((rows, keys)) < 0.8
    names = pa.array([f"feature_{key:05}" for key in range(keys)])
    offsets = np.concatenate(([0], np.cumsum(has.sum(axis=1)))).astype(np.int32)
    values = np.round(random.normal(size=int(offsets[-1])), 3).astype(np.float32)
    maps = pa.MapArray.from_arrays(offsets, names.take(np.nonzero(has)[1]), values)
    real = pa.array(np.round(random.normal(size=rows), 3).astype(np.float32), mask=~has[:, 0])
    return pa.table({"features": maps, "real": real})


def read_key(library: Format, path: str, key: str) -> Any:
    """The values of a key: its column, or a look-up in all maps."""
    if isinstance(library, (Fermion, PaimonShredded)):
        return library.read(path, [f"features['{key}']"])
    import pyarrow.compute as pc

    maps = library.read(path, ["features"])["features"]
    return pa.table({"key": pc.map_lookup(maps, key, "first")})


def case(
    read: Callable[[Format, str, int], Any],
    rows: dict[Size, int] = ROWS,
    keys: dict[Size, int] = KEYS,
) -> Case:
    """Read something of a file of maps."""

    def prepare(library: Format, size: Size) -> Action:
        name = f"maps-{rows[size]}x{keys[size]}"
        count = max(rows[size] // library.one_in, 1)
        path = library.stored(name, size, lambda: features(count, keys[size]))

        def timed() -> dict[str, int]:
            table = read(library, path, keys[size])
            return {"rows": table.num_rows, "file_bytes": size_of(Path(path))}

        return timed

    return Case(prepare, calls=3)


def write(library: Format, size: Size) -> Action:
    """Write maps that lie in memory."""
    rows = ROWS[size] // library.one_in
    return library.writing(features(rows, KEYS[size]).select(["features"]), size)


KEY, REAL, ALL, WRITE = "one of 2,000 keys", "a real column", "all maps", "write"
QUESTION = Question(
    module="benchmarks.maps",
    title="Maps of 2,000 keys, 10,000 rows: one key, a real column, all maps",
    cases={
        KEY: case(lambda library, path, keys: read_key(library, path, f"feature_{keys // 2:05}")),
        REAL: case(lambda library, path, keys: library.read(path, ["real"])),
        "one of 100,000 keys": case(
            lambda library, path, keys: read_key(library, path, f"feature_{keys // 2:05}"),
            dict.fromkeys(ROWS, 100),
            MANY,
        ),
        ALL: case(lambda library, path, keys: library.read(path, ["features"])),
        WRITE: Case(write),
    },
    libraries=(FERMION, FERMION_WHOLE, PARQUET_ZSTD, LANCE, PAIMON_SHREDDED),
    targets=(
        Target(KEY, 1.5, of=REAL),
        Target("one of 100,000 keys", 0.003),
        Target(ALL, 1.3, of=FERMION_WHOLE.name),
        Target(WRITE, 1.5, of=FERMION_WHOLE.name),
        Target(ALL, 1.05, metric="file_bytes", of=FERMION_WHOLE.name),
    ),
    rounds={"full": 3},
    metrics=("file_bytes",),
    notes="Of 100,000 keys: 100 rows. Formats without columns of keys read all maps, and look the "
    "key up. Paimon's shared shredding, by pypaimon, gets a tenth of the rows, as it is slow.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
