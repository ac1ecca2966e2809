"""Deletes, updates, merges and overwrites give what Spark's SQL gives on a table of Paimon.

Each history is a few statements with the same conditions on both sides; see `test_java_engine`.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from fermion_table import Table, lit
from tests.kit.tables.merge_rows import batch_of
from tests.kit.tables.paimon_histories import rows_of, schema_of
from tests.paimon.environment import SECONDS_MAX, carried_out
from tests.paimon.our_tables import comparable_rows, create, paimons_rows
from tests.paimon.sql_histories import SQL_FAMILIES, drawn_sql

HISTORIES = (int(os.environ.get("PAIMON_HISTORIES", "4")) + 1) // 2
"""Of each family; a statement of Spark takes a second."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS_MAX)]


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, dict]:
    """All histories with what Paimon returned, by name; one session of Spark for all of them."""
    histories = [drawn_sql(name, number) for name in SQL_FAMILIES for number in range(HISTORIES)]
    scratch = tmp_path_factory.mktemp("spark")
    return carried_out("spark_engine.py", "paimon-spark-3.5-*.jar", histories, scratch)


def carry_out(table: Table, statement: dict[str, Any], history: dict) -> None:
    """Carry out a statement of a history."""
    if statement["kind"] == "delete":
        table.delete(statement["where"])
        return
    if statement["kind"] == "update":
        values = {name: lit(value) for name, value in statement["set"].items()}
        table.update(statement["where"], values)
        return
    schema = schema_of(history)
    rows = batch_of(rows_of(statement["rows"], schema), schema)
    if statement["kind"] == "insert":
        table.upsert(rows)
    elif statement["kind"] == "overwrite":
        table.overwrite(rows)
    else:
        merge = table.merge(rows, on=statement["on"])
        for which, action, condition in statement["clauses"]:
            merge = getattr(merge, f"when_{which}_{action}")(condition=condition)
        merge.execute()


@pytest.mark.parametrize("name", SQL_FAMILIES)
def test_statements_give_what_sql_gives_on_a_table_of_paimon(name, results, tmp_path):
    for number in range(HISTORIES):
        history = results[drawn_sql(name, number)["name"]]
        table = create(history, tmp_path / str(number))
        for at, expected in enumerate(history["expected_after"]):
            carry_out(table, history["commits"][at], history)
            if compaction := history["our_compactions"][at]:
                table.compact(full=compaction == "full")
            found = comparable_rows(table.scan().to_arrow().to_pylist(), history)
            assert found == paimons_rows(expected, history), (history["name"], at)
