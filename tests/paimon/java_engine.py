"""A program of its own: carries out histories with Paimon's Java library, and notes what they give.

    python java_engine.py JAR HISTORIES RESULTS

It runs in the environment of `make paimon`, which has JPype, and Hadoop's classes in the jars of
PySpark. Both files hold a JSON object per line. A result is its history with `expected_after` (all
rows after each commit), `changes` (what a streaming reader got of each commit, if the table has a
changelog producer) and `error` (null, or where Java raised and what).
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import jpype
import jpype.imports
import pyspark

JAVA_OPTIONS = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
CHANGES_MAX = 100
"""Snapshots of one commit that a streaming reader is asked for."""


def start(jar: str) -> Any:
    """Start Java; return the package org.apache.paimon."""
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    jpype.startJVM(*JAVA_OPTIONS, classpath=[jar, jars])
    org = jpype.JPackage("org")
    org.apache.logging.log4j.core.config.Configurator.setRootLevel(
        org.apache.logging.log4j.Level.ERROR
    )
    return org.apache.paimon


class Types:
    """Types by their text, and values as JSON and as Paimon's objects."""

    def __init__(self, paimon: Any) -> None:
        self.data, self.types = paimon.data, paimon.types.DataTypes
        self.getter = paimon.data.InternalRow.createFieldGetter
        self.items = paimon.data.InternalArray.createElementGetter

    def parse(self, text: str) -> Any:
        """The type of a text; its parts are remembered, as Java's objects are slow to ask."""
        plain = {"BOOLEAN", "INT", "BIGINT", "STRING", "DOUBLE", "DATE"}
        if text in plain:
            return getattr(self.types, text)()
        if found := re.fullmatch(r"DECIMAL\((\d+), ?(\d+)\)", text):
            return self.types.DECIMAL(int(found[1]), int(found[2]))
        if found := re.fullmatch(r"TIMESTAMP\((\d)\)", text):
            return self.types.TIMESTAMP(int(found[1]))
        if found := re.fullmatch(r"ARRAY<(.+)>", text):
            return self.types.ARRAY(self.parse(found[1]))
        if found := re.fullmatch(r"MAP<(\w+), (.+)>", text):
            return self.types.MAP(self.parse(found[1]), self.parse(found[2]))
        fields = [
            self.types.FIELD(number, name, self.parse(kind))
            for number, (name, kind) in enumerate(parts_of(text))
        ]
        return self.types.ROW(fields)

    def to_java(self, value: Any, text: str) -> Any:
        """A value of a history as Paimon's."""
        java = jpype.java
        if value is None:
            return None
        match text.partition("(")[0].partition("<")[0]:
            case "BOOLEAN":
                return java.lang.Boolean(value)
            case "INT":
                return java.lang.Integer(value)
            case "BIGINT":
                return java.lang.Long(value)
            case "DOUBLE":
                return java.lang.Double(float(value))
            case "STRING":
                return self.data.BinaryString.fromString(value)
            case "DATE":
                return java.lang.Integer(int(java.time.LocalDate.parse(value).toEpochDay()))
            case "TIMESTAMP":
                return self.data.Timestamp.fromLocalDateTime(java.time.LocalDateTime.parse(value))
            case "DECIMAL":
                digits, scale = map(int, re.findall(r"\d+", text))
                return self.data.Decimal.fromBigDecimal(java.math.BigDecimal(value), digits, scale)
            case "ARRAY":
                items = [self.to_java(each, text[6:-1]) for each in value]
                return self.data.GenericArray(jpype.JArray(java.lang.Object)(items))
            case "MAP":
                key, item = text[4:-1].split(", ", 1)
                pairs = java.util.LinkedHashMap()
                for one, other in value:
                    pairs.put(self.to_java(one, key), self.to_java(other, item))
                return self.data.GenericMap(pairs)
        fields = [self.to_java(value[name], kind) for name, kind in parts_of(text)]
        return self.data.GenericRow.of(jpype.JArray(java.lang.Object)(fields))

    def to_json(self, value: Any, text: str) -> Any:
        """A value of Paimon's as a history holds it."""
        if value is None:
            return None
        match text.partition("(")[0].partition("<")[0]:
            case "BOOLEAN":
                return bool(value)
            case "INT" | "BIGINT":
                return int(value)
            case "DOUBLE":
                return float(value)
            case "STRING" | "DECIMAL":
                return str(value.toString())
            case "DATE":
                return str(jpype.java.time.LocalDate.ofEpochDay(int(value)).toString())
            case "TIMESTAMP":
                return str(value.toLocalDateTime().toString())
            case "ARRAY":
                return self.list_of(value, text[6:-1])
            case "MAP":
                key, item = text[4:-1].split(", ", 1)
                keys = self.list_of(value.keyArray(), key)
                return list(zip(keys, self.list_of(value.valueArray(), item), strict=True))
        return {
            name: self.to_json(self.getter(self.parse(kind), at).getFieldOrNull(value), kind)
            for at, (name, kind) in enumerate(parts_of(text))
        }

    def list_of(self, values: Any, text: str) -> list:
        getter = self.items(self.parse(text))
        return [
            self.to_json(getter.getElementOrNull(values, at), text) for at in range(values.size())
        ]


def parts_of(text: str) -> list[tuple[str, str]]:
    """Names and types of the fields of a ROW of plain types."""
    return [tuple(field.split(" ", 1)) for field in text[4:-1].split(", ")]


class PaimonTable:
    """A table of a history.

    A history's commit is rows; `compactions` says for each commit what is compacted after it:
    null, "some" (what universal compaction picks) or "full".
    """

    def __init__(self, paimon: Any, catalog: Any, name: str, history: dict, scratch: str) -> None:
        self.paimon, self.types, self.scratch = paimon, Types(paimon), scratch
        self.columns = [(column, text) for column, text, _ in history["schema"]]
        parsed = [self.types.parse(text) for _, text in self.columns]
        self.getters = [self.types.getter(kind, at) for at, kind in enumerate(parsed)]
        builder = paimon.schema.Schema.newBuilder()
        for (column, _, is_nullable), kind in zip(history["schema"], parsed, strict=True):
            builder.column(column, kind if is_nullable else kind.notNull())
        builder.primaryKey(strings(history["primary_key"]))
        builder.partitionKeys(strings(history["partition"]))
        builder.options(text_map(history["options"] | history["paimon_options"]))
        identifier = paimon.catalog.Identifier.create("default", name)
        catalog.createTable(identifier, builder.build(), False)
        self.table = catalog.getTable(identifier)
        self.trees: dict[str, tuple[Any, int]] = {}
        from_first = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
        self.stream = self.table.copy(text_map(from_first)).newReadBuilder()
        self.stream_scan = self.stream.newStreamScan()

    def commit(self, rows: list[dict]) -> None:
        """Write rows as one commit; it has what writers compact, too."""

        def write_rows(write: Any) -> None:
            for row in rows:
                values = [self.types.to_java(row.get(name), text) for name, text in self.columns]
                kind = self.paimon.types.RowKind.fromShortString(row.get("_kind") or "+I")
                fields = jpype.JArray(jpype.java.lang.Object)(values)
                made = self.paimon.data.GenericRow.ofKind(kind, fields)
                write.write(made)
                partition, bucket = write.getPartition(made).copy(), write.getBucket(made)
                self.trees[f"{partition.hashCode()} {bucket}"] = (partition, int(bucket))

        self._commit(self.table, write_rows)

    def compact(self, *, is_full: bool) -> None:
        """Compact every bucket that has rows."""

        def compact_trees(write: Any) -> None:
            for partition, bucket in self.trees.values():
                write.compact(partition, bucket, is_full)

        self._commit(self.table.copy(text_map({"write-only": "false"})), compact_trees)

    def _commit(self, table: Any, fill: Any) -> None:
        builder = table.newBatchWriteBuilder()
        write, commit = builder.newWrite(), builder.newCommit()
        write.withIOManager(self.paimon.disk.IOManager.create(self.scratch))
        try:
            fill(write)
            commit.commit(write.prepareCommit())
        finally:
            write.close()
            commit.close()

    def rows(self) -> list[dict]:
        """All rows of the table."""
        builder = self.table.newReadBuilder()
        return [row for _, row in self._read(builder, builder.newScan().plan())]

    def changes(self) -> list[dict]:
        """The changes that a streaming reader gets that has read all earlier ones."""
        found = []
        for _ in range(CHANGES_MAX):
            latest = self.table.snapshotManager().latestSnapshotId()
            done = self.stream_scan.checkpoint()
            if latest is None or (done is not None and int(done) > int(latest)):
                return found
            plan = self.stream_scan.plan()
            found += [row | {"_kind": kind} for kind, row in self._read(self.stream, plan)]
        raise RuntimeError("a streaming reader does not come to an end")

    def _read(self, builder: Any, plan: Any) -> list[tuple[str, dict]]:
        read = builder.newRead().withIOManager(self.paimon.disk.IOManager.create(self.scratch))
        found = []
        iterator = read.createReader(plan).toCloseableIterator()
        while iterator.hasNext():
            row = iterator.next()
            values = {
                name: self.types.to_json(getter.getFieldOrNull(row), text)
                for (name, text), getter in zip(self.columns, self.getters, strict=True)
            }
            found.append((str(row.getRowKind().shortString()), values))
        iterator.close()
        return found


def strings(names: list[str]) -> Any:
    """A list of Java's."""
    return jpype.java.util.ArrayList(names)


def text_map(values: dict[str, str]) -> Any:
    """A map of Java's."""
    found = jpype.java.util.HashMap()
    for name, value in values.items():
        found.put(name, value)
    return found


def carry_out(paimon: Any, catalog: Any, number: int, history: dict, scratch: str) -> dict:
    """Return a history with what it gives."""
    result = history | {"expected_after": [], "changes": [], "error": None}
    stage, at = "create", None
    try:
        table = PaimonTable(paimon, catalog, f"t{number}", history, scratch)
        has_changes = "changelog-producer" in history["options"]
        for at, rows in enumerate(history["commits"]):
            stage = "write"
            table.commit(rows)
            stage = "compact"
            if history["compactions"][at]:
                table.compact(is_full=history["compactions"][at] == "full")
            stage = "read"
            after = table.rows()
            changes = table.changes() if has_changes else None
            result["expected_after"].append(after)
            result["changes"].append(changes)
    except jpype.JException as error:
        cause = error
        while cause.getCause() is not None:
            cause = cause.getCause()
        result["error"] = {"at_commit": at, "stage": stage, "message": str(cause.toString())[:500]}
    return result


def main() -> None:
    jar, histories, results = sys.argv[1:]
    paimon = start(jar)
    with tempfile.TemporaryDirectory() as scratch:
        options = paimon.options.Options.fromMap(text_map({"warehouse": f"{scratch}/warehouse"}))
        context = paimon.catalog.CatalogContext.create(options)
        catalog = paimon.catalog.CatalogFactory.createCatalog(context)
        catalog.createDatabase("default", True)
        with (
            open(histories, encoding="utf-8") as lines,
            open(results, "w", encoding="utf-8") as out,
        ):
            for number, line in enumerate(lines):
                done = carry_out(paimon, catalog, number, json.loads(line), scratch)
                out.write(json.dumps(done) + "\n")


if __name__ == "__main__":
    main()
