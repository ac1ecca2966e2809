"""Writers' messages that are committed to another branch than they were written for."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

from fermion.errors import FermionError, InvalidArgumentError
from fermion_table import Table
from fermion_table.engine import WriterMessage, compact_group


@pytest.fixture
def table(table_path) -> Table:
    return with_branch(table_path)


def with_branch(table_path: str) -> Table:
    """Main and branch `dev` have each made a column c of their own, as schema 1."""
    made = Table.create(table_path, pa.schema({"a": pa.int64()}), durability="fast")
    made.append({"a": [1]})
    made.branches.create("dev")
    for branch, dtype in (("main", pa.int64()), ("dev", pa.string())):
        with opened(made, branch).update_schema() as update:
            update.add_column("c", dtype)
    made.refresh()
    return made


def opened(table: Table, branch: str = "main") -> Table:
    return Table.open(table.location, branch=branch, durability="fast")


def written(table: Table, branch: str, data: dict) -> list[WriterMessage]:
    with opened(table, branch).writer() as writer:
        writer.write(data)
        return pickle.loads(pickle.dumps(writer.prepare_commit()))


def transaction(table: Table, messages: list[WriterMessage]) -> None:
    with table.transaction() as open_transaction:
        open_transaction.append_written(messages)


COMMITS: dict[str, Callable] = {
    "commit": lambda table, messages: table.commit(messages),
    "transaction": transaction,
}


def test_files_of_a_schema_made_in_the_same_millisecond_are_refused(table_path, monkeypatch):
    """Times do not tell schemas apart."""
    monkeypatch.setattr("fermion_table.commit.schema_versions.now_ms", lambda: 1_800_000_000_000)
    test_files_of_another_branchs_schema_of_the_same_id_are_refused(
        "main", "dev", "commit", with_branch(table_path)
    )


def test_a_schema_has_the_same_digest_in_memory_and_when_it_is_read_again(table_path):
    """A writer that made the schema itself, and a reader that opens the branch later."""
    made = Table.create(table_path, pa.schema({"a": pa.int64()}), durability="fast")
    made.branches.create("dev")
    dev = opened(made, "dev")
    with dev.update_schema() as update:
        update.add_column(
            "price", pa.decimal128(12, 2), default=Decimal("1.50"), comment="in euros"
        )
        update.add_column("deep", pa.list_(pa.struct({"x": pa.float32(), "é": pa.binary()})))
        update.add_column("at", pa.timestamp("us", "UTC"))
    assert len(dev.schema.fields) == 4
    assert opened(made, "dev").schema.digest == dev.schema.digest
    assert pickle.loads(pickle.dumps(dev.schema)).digest == dev.schema.digest


@pytest.mark.parametrize("how", COMMITS)
@pytest.mark.parametrize(("source", "target"), [("dev", "main"), ("main", "dev")])
def test_files_of_another_branchs_schema_of_the_same_id_are_refused(source, target, how, table):
    """They were published, and the branch could not be read any more."""
    data = {"a": [2], "c": ["text" if source == "dev" else 3]}
    messages = written(table, source, data)
    before = opened(table, target).scan().to_arrow()
    with pytest.raises(InvalidArgumentError, match="never had the schema"):
        COMMITS[how](opened(table, target), messages)
    assert opened(table, target).scan().to_arrow() == before
    COMMITS[how](opened(table, source), messages)
    assert opened(table, source).scan().count() == 2


def test_files_of_a_branch_that_was_made_again_are_refused(table):
    messages = written(table, "dev", {"a": [2], "c": ["text"]})
    table.branches.delete("dev")
    table.branches.create("dev", version=1)
    with opened(table, "dev").update_schema() as update:
        update.add_column("c", pa.float64())
    with pytest.raises(FermionError):
        opened(table, "dev").commit(messages)
    assert opened(table, "dev").scan().to_arrow()["c"].to_pylist() == [None]


def test_files_of_a_branch_follow_its_fast_forward(table_path):
    """The parent has the branch's schema then."""
    table = Table.create(table_path, pa.schema({"a": pa.int64()}), durability="fast")
    table.branches.create("dev")
    with opened(table, "dev").update_schema() as update:
        update.add_column("c", pa.string())
    messages = written(table, "dev", {"a": [2], "c": ["text"]})
    table.branches.fast_forward("dev")
    opened(table).commit(messages)
    assert opened(table).scan().to_arrow().to_pylist() == [{"a": 2, "c": "text"}]


def test_compactions_of_another_branch_are_not_committed(table):
    """Neither branch loses or breaks anything."""
    dev = opened(table, "dev")
    for value in ("x", "y", "z"):
        dev.append({"a": [5], "c": [value]})
    messages = [compact_group(task) for task in dev.plan_compaction()]
    before = opened(table).scan().to_arrow()
    with contextlib.suppress(FermionError):
        opened(table).commit_compaction(messages, dev.snapshot)
    assert opened(table).scan().to_arrow() == before
    assert opened(table, "dev").verify(data=True).ok
