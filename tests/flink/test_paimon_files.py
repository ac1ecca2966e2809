"""Flink writes, changes, compacts and reads tables of Paimon whose files are Fermion files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fermion
from tests.flink.environment import FlinkProcess, flink_process, python_of_workers
from tests.kit.tables.paimon_java import engine_jars

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkProcess]:
    """Flink with Paimon's connector and the jar of the file format."""
    jars = ";".join(f"file://{jar}" for jar in engine_jars())
    settings = {"pipeline.jars": jars, "parallelism.default": "2"}
    with flink_process(tmp_path_factory.mktemp("flink"), settings) as process:
        yield process


def test_rows_of_flink_are_upserted_compacted_and_read(flink, tmp_path):
    options = f"'file.format' = 'fermion', 'python.executable' = '{python_of_workers()}'"
    use = (
        f"CREATE CATALOG p WITH ('type' = 'paimon', 'warehouse' = 'file://{tmp_path}')",
        "USE CATALOG p",
        "CREATE DATABASE IF NOT EXISTS db",
    )
    flink.sql(
        *use,
        "CREATE TABLE db.t (id BIGINT, name STRING, v DECIMAL(10, 2), seen TIMESTAMP(6), "
        "tags ARRAY<STRING>, m MAP<STRING, INT>, r ROW<a INT, b STRING>, "
        f"PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '2', {options})",
        "INSERT INTO db.t VALUES "
        "(1, 'a', 1.50, TIMESTAMP '2026-01-02 03:04:05.123456', ARRAY['x'], MAP['k', 1], "
        "ROW(1, 'p')), "
        "(2, 'b', 2.50, CAST(NULL AS TIMESTAMP(6)), CAST(NULL AS ARRAY<STRING>), "
        "CAST(NULL AS MAP<STRING, INT>), CAST(NULL AS ROW<a INT, b STRING>))",
        "INSERT INTO db.t VALUES (2, 'B', 9.50, TIMESTAMP '2026-01-02 00:00:00', ARRAY['y', 'z'], "
        "MAP['k', 2], ROW(2, 'q')), (3, 'c', 3.50, TIMESTAMP '2026-01-03 00:00:00', "
        "ARRAY['w'], MAP['k', 3], ROW(3, 'r'))",
    )
    columns = "id, name, CAST(v AS STRING), CAST(seen AS STRING), tags, m, r"
    select = f"SELECT {columns} FROM db.t ORDER BY id"
    expected = [
        (1, "a", "1.50", "2026-01-02 03:04:05.123456", ["x"], {"k": 1}, (1, "p")),
        (2, "B", "9.50", "2026-01-02 00:00:00.000000", ["y", "z"], {"k": 2}, (2, "q")),
        (3, "c", "3.50", "2026-01-03 00:00:00.000000", ["w"], {"k": 3}, (3, "r")),
    ]
    assert [row for _, row in flink.sql(*use, select)] == expected
    flink.sql(*use, "CALL sys.compact(`table` => 'db.t')")
    assert [row for _, row in flink.sql(*use, select)] == expected
    plan = flink.sql(*use, "EXPLAIN SELECT name FROM db.t WHERE id = 2")[0][1][0]
    assert "filter=[=(id, 2" in plan
    assert "project=[id, name]" in plan
    assert [row for _, row in flink.sql(*use, "SELECT name FROM db.t WHERE id = 2")] == [("B",)]
    files = list(Path(tmp_path).glob("db.db/t/bucket-*/data-*.fermion"))
    assert files
    assert all(fermion.open(file).num_rows for file in files)
