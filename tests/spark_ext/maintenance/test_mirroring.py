"""Mirrors published by Spark's tasks."""

from __future__ import annotations

import pytest

import spark_ext
from fermion_table import Table
from tests.kit.tables.mirrored import KINDS, history, rows, shown, source_rows

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_tasks_write_what_this_process_would(spark, tmp_path, kind):
    table = history(tmp_path / "t", primary_key=["id"], properties={"bucket": "2"})
    table.mirrors.create(kind.name, tmp_path / "m", history=True)
    (done,) = spark_ext.mirror(spark, tmp_path / "t")
    assert done.snapshots == tuple(each.id for each in table.snapshots())
    found = kind.found(tmp_path / "m")
    assert found == {each: source_rows(table, each) for each in found}
    table.append(rows([7]).rename_columns(["id", "kind", "w"]))
    table.mirrors.publish()
    assert spark_ext.mirror(spark, tmp_path / "t", kind.name)[0].snapshots == ()
    newest = Table.open(tmp_path / "t")
    assert kind.found(tmp_path / "m")[newest.snapshot.id] == shown(newest.to_arrow())
