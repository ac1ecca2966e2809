"""Paimon's Java engine in this process, with the file format `fermion`: see `engine`.

It reads and writes tables that pypaimon makes, so that no value is translated for a test.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]
JAR = PROJECT / "flink_ext" / "java" / "paimon" / "target" / "paimon-fermion.jar"
JARS = Path(os.environ.get("FERMION_PAIMON_JARS") or PROJECT / ".venv-pypaimon" / "jars")
OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)


class JavaEngine:
    """What tests ask of Java.

    Parameters
    ----------
    warehouse
        The directory of pypaimon's catalog.
    """

    def __init__(self, warehouse: Path) -> None:
        self.paimon = _paimon()
        options = self.paimon.options.Options()
        options.set("warehouse", str(warehouse))
        options.set("cache-enabled", "false")  # pypaimon changes tables, too
        context = self.paimon.catalog.CatalogContext.create(options)
        self._catalog = self.paimon.catalog.CatalogFactory.createCatalog(context)

    def table(self, name: str) -> Any:
        """A table of the database `db` as it is now."""
        identifier = self.paimon.catalog.Identifier.create("db", name)
        return self._catalog.getTable(identifier)

    def rows(
        self, name: str, *, predicates: Sequence[Any] = (), columns: Sequence[str] | None = None
    ) -> Iterator[Any]:
        """The rows that readers give without testing predicates; each is valid until the next."""
        table = self.table(name)
        builder = table.newReadBuilder()
        for predicate in predicates:
            builder = builder.withFilter(predicate)
        if columns is not None:
            names = list(table.rowType().getFieldNames())
            builder = builder.withProjection([names.index(column) for column in columns])
        reader = builder.newRead().createReader(builder.newScan().plan())
        iterator = reader.toCloseableIterator()
        try:
            while iterator.hasNext():
                yield iterator.next()
        finally:
            iterator.close()

    def predicates(self, name: str) -> Any:
        """What builds predicates of a table."""
        return self.paimon.predicate.PredicateBuilder(self.table(name).rowType())

    def writing(self, name: str) -> Any:
        """A writer of one commit, and what commits it."""
        builder = self.table(name).newBatchWriteBuilder()
        manager = self.paimon.disk.IOManager.create(os.environ.get("TMPDIR", "/tmp"))
        return builder.newWrite().withIOManager(manager), builder.newCommit()

    def copy(self, source: str, target: str) -> int:
        """Write the rows of a table to another one as one commit; returns their number."""
        writer, commit = self.writing(target)
        count = 0
        try:
            for row in self.rows(source):
                writer.write(row)
                count += 1
            commit.commit(writer.prepareCommit())
        finally:
            writer.close()
            commit.close()
        return count

    def compact(self, name: str, *buckets: int) -> None:
        """Compact buckets of a table without partitions as one commit."""
        writer, commit = self.writing(name)
        try:
            for bucket in buckets:
                writer.compact(self.paimon.data.BinaryRow.EMPTY_ROW, bucket, True)
            commit.commit(writer.prepareCommit())
        finally:
            writer.close()
            commit.close()


def engine(warehouse: Path) -> JavaEngine:
    """The engine; the test is skipped where it or the jar is missing."""
    engine_jars()
    return JavaEngine(warehouse)


def engine_jars() -> list[Path]:
    """The jars of the engine, and ours first; the test is skipped where they are missing."""
    for file, target in ((JAR, "paimon-jar"), (JARS, "test-pypaimon")):
        if not file.exists():
            pytest.skip(f"{file} is missing: run `make {target}`")
    return [JAR, *sorted(JARS.glob("*.jar"))]


@cache
def _paimon() -> Any:
    """Start Java; the package org.apache.paimon."""
    jpype = pytest.importorskip("jpype", reason="JPype is installed by make test-pypaimon")
    os.environ["FERMION_PYTHON"] = sys.executable
    jpype.startJVM(*OPTIONS, classpath=[str(jar) for jar in engine_jars()])
    return jpype.JPackage("org").apache.paimon
