"""Fermion files in tables of Paimon beside its other formats: size, writing and reading lineitem.

``make bench-paimon`` runs it where pypaimon and all formats are. All tables are append tables with
the options that pypaimon has by default; only the format differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import data, harness
from benchmarks.files import edition, made, remove, size_of
from benchmarks.layers import PAIMON
from benchmarks.question import Action, Case, Library, Question, Size, Target

THREE = ["l_orderkey", "l_extendedprice", "l_shipdate"]
TABLE = "n.t"


@dataclass(frozen=True)
class PaimonFormat(Library):
    """A value of the option ``file.format``."""

    set_up: str = "make bench-paimon"

    def __post_init__(self) -> None:
        object.__setattr__(self, "modules", ("pypaimon", *self.modules))

    def warm_up(self) -> None:
        if self.own:
            from fermion_table.paimon import register

            register()

    def create(self, folder: Path, schema: pa.Schema) -> Any:
        """A new table in a warehouse."""
        from pypaimon import CatalogFactory, Schema

        self.warm_up()
        catalog = CatalogFactory.create({"warehouse": str(folder)})
        catalog.create_database("n", True)
        options = {"file.format": self.name, "bucket": "-1"}
        catalog.create_table(TABLE, Schema.from_pyarrow_schema(schema, options=options), True)
        return catalog.get_table(TABLE)

    def stored(self, size: Size) -> Any:
        """The table with all rows of lineitem."""

        def make(folder: Path) -> None:
            rows = data.lineitem(size)
            PAIMON.append(self.create(folder, rows.schema), rows)

        name = f"paimon-{self.name}-{edition(self.package)}"
        return PAIMON.open(str(made(data.scaled(size), name, make)))


def write(library: PaimonFormat, size: Size) -> Action:
    """Append all rows as one commit; the size of the table is a metric."""
    rows = data.lineitem(size)
    folder = harness.CACHE / f"paimon-write-{library.name}"

    def action() -> dict[str, Any]:
        remove(folder)
        PAIMON.append(library.create(folder, rows.schema), rows)
        return {"file_bytes": size_of(folder)}

    return action


def read(columns: Sequence[str] | None, *, month: bool = False) -> Case:
    """All rows, or those shipped in March 1995."""

    def prepare(library: PaimonFormat, size: Size) -> Action:
        table = library.stored(size)

        def action() -> pa.Table:
            builder = table.new_read_builder()
            if month:
                first, after = data.MONTH
                predicates = builder.new_predicate_builder()
                builder = builder.with_filter(
                    predicates.and_predicates(
                        [
                            predicates.greater_or_equal("l_shipdate", first),
                            predicates.less_than("l_shipdate", after),
                        ]
                    )
                )
            if columns is not None:
                builder = builder.with_projection(list(columns))
            return builder.new_read().to_arrow(builder.new_scan().plan().splits())

        return action

    return Case(prepare)


FERMION = PaimonFormat("fermion", package="fermion", own=True)
PARQUET = PaimonFormat("parquet", package="pypaimon")
ORC = PaimonFormat("orc", package="pypaimon")
VORTEX = PaimonFormat("vortex", modules=("vortex",), package="vortex-data")
MOSAIC = PaimonFormat("mosaic", modules=("mosaic",), package="paimon-mosaic")

QUESTION = Question(
    module="benchmarks.paimon_formats",
    title="Formats in the same Paimon: TPC-H lineitem written, and read by pypaimon",
    cases={
        "write": Case(write),
        "read all": read(None),
        "3 columns": read(THREE),
        "one month, 3 columns": read(THREE, month=True),
    },
    libraries=(FERMION, PARQUET, ORC, VORTEX, MOSAIC),
    targets=(
        Target("write", 1.0, metric="file_bytes", of="best rival"),
        Target("read all", 1.0, of="best rival"),
        Target("3 columns", 1.0, of="best rival"),
        Target("one month, 3 columns", 1.0, of="best rival"),
    ),
    metrics=("file_bytes",),
    rounds={"full": 3},
    notes="By pypaimon alone, with its default options; its own work is part of every figure.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
