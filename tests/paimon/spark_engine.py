"""A program of its own: carries out SQL histories with Spark and Paimon, and notes what they give.

    python spark_engine.py JAR HISTORIES RESULTS

It runs in the environment of `make paimon`. Both files hold a JSON object per line. A result is its
history with `expected_after`: all rows after each statement.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

from pyspark.sql import SparkSession

OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def session(jar: str, warehouse: str) -> SparkSession:
    """Start Spark with a catalog of Paimon's."""
    catalog = "spark.sql.catalog.paimon"
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": jar,
        "spark.driver.extraJavaOptions": OPTIONS,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
        catalog: "org.apache.paimon.spark.SparkCatalog",
        f"{catalog}.warehouse": warehouse,
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql("USE paimon.default")
    return spark


def literal(value: Any) -> str:
    """A value as SQL."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else repr(value)


def values_of(rows: list[dict], schema: list) -> str:
    """Rows as a table of the history's types."""
    lines = []
    for row in rows:
        values = (f"CAST({literal(row.get(name))} AS {text})" for name, text, _ in schema)
        lines.append(f"({', '.join(values)})")
    return f"SELECT * FROM VALUES {', '.join(lines)} AS v({', '.join(name for name, *_ in schema)})"


def creation(table: str, history: dict) -> str:
    columns = ", ".join(
        f"{name} {text}{'' if is_nullable else ' NOT NULL'}"
        for name, text, is_nullable in history["schema"]
    )
    options = history["options"] | history["paimon_options"]
    options |= {"primary-key": ",".join(history["primary_key"])}
    named = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    parts = f" PARTITIONED BY ({', '.join(history['partition'])})" if history["partition"] else ""
    return f"CREATE TABLE {table} ({columns}){parts} TBLPROPERTIES ({named})"


def statement(table: str, step: dict, schema: list) -> str:
    """A statement of a history as SQL."""
    match step["kind"]:
        case "insert":
            return f"INSERT INTO {table} {values_of(step['rows'], schema)}"
        case "overwrite":
            return f"INSERT OVERWRITE {table} {values_of(step['rows'], schema)}"
        case "delete":
            return f"DELETE FROM {table} WHERE {step['where']}"
        case "update":
            pairs = ", ".join(f"{name} = {literal(each)}" for name, each in step["set"].items())
            return f"UPDATE {table} SET {pairs} WHERE {step['where']}"
    actions = {"update": "UPDATE SET *", "delete": "DELETE", "insert": "INSERT *"}
    clauses = [
        f"WHEN {which.upper().replace('_', ' ')}{f' AND {condition}' if condition else ''} "
        f"THEN {actions[action]}"
        for which, action, condition in step["clauses"]
    ]
    same = " AND ".join(f"target.{name} = source.{name}" for name in step["on"])
    return (
        f"MERGE INTO {table} AS target USING ({values_of(step['rows'], schema)}) AS source "
        f"ON {same} {' '.join(clauses)}"
    )


def carry_out(spark: SparkSession, table: str, history: dict) -> dict:
    """Return a history with what it gives."""
    spark.sql(creation(table, history))
    after = []
    for step, compaction in zip(history["commits"], history["compactions"], strict=True):
        spark.sql(statement(table, step, history["schema"]))
        if compaction:
            spark.sql(f"CALL sys.compact(table => 'default.{table}')")
        after.append([row.asDict() for row in spark.sql(f"SELECT * FROM {table}").collect()])
    return history | {"expected_after": after}


def main() -> None:
    jar, histories, results = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        spark = session(jar, scratch)
        with (
            open(histories, encoding="utf-8") as lines,
            open(results, "w", encoding="utf-8") as out,
        ):
            for number, line in enumerate(lines):
                out.write(json.dumps(carry_out(spark, f"t{number}", json.loads(line))) + "\n")
        spark.stop()


if __name__ == "__main__":
    main()
