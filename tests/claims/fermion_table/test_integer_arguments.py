"""Integers that callers pass to tables: nothing is coerced; those of NumPy and Arrow are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fermion_table import Table

NO_INTEGERS = [True, np.bool_(False), 1.0, np.float64(1), b"1", 1j]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    found = Table.create(tmp_path_factory.mktemp("integers") / "t", pa.schema({"a": pa.int64()}))
    found.append_batches([(0, {"a": [1]}), (1, {"a": [2, 3]})])
    found.append_batch(2, {"a": [4]})
    return found


CALLS = {
    "limit": lambda table, n: table.scan(limit=n).to_arrow(),
    "threads": lambda table, n: table.scan(threads=n).to_arrow(),
    "snapshot_id": lambda table, n: table.scan(snapshot_id=n).to_arrow(),
    "batch_id": lambda table, n: table.scan(batch_id=n).to_arrow(),
    "batch_ids": lambda table, n: table.scan(batch_id=[0, n]).to_arrow(),
    "lookup_batch": lambda table, n: table.lookup_batch(n),
    "head": lambda table, n: table.scan().head(n),
    "explain": lambda table, n: table.scan().explain(files=n),
    "history": lambda table, n: len(table.history(limit=n)),
    "retain_last": lambda table, n: table.expire_snapshots(retain_last=n, dry_run=True).dry_run,
    "min_input_files": lambda table, n: table.compact(min_input_files=n, dry_run=True),
    "max_groups": lambda table, n: table.compact(max_groups_per_commit=n, dry_run=True),
    "target_size": lambda table, n: table.compact(target_size=n, dry_run=True),
}


@pytest.mark.parametrize("value", [*NO_INTEGERS, "1"], ids=repr)
@pytest.mark.parametrize("call", CALLS)
def test_no_argument_of_a_table_is_coerced_to_an_integer(table: Table, call: str, value: Any):
    """A type error that names the type; sizes may be text."""
    if call == "target_size" and isinstance(value, str):
        return
    with pytest.raises(TypeError, match=r"expected (an )?integer"):
        CALLS[call](table, value)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, pa.scalar])
@pytest.mark.parametrize("call", CALLS)
def test_integers_of_numpy_and_arrow_are_integers_to_a_table(table: Table, call: str, kind: Any):
    """The answers are those to Python's."""
    assert CALLS[call](table, kind(2)) == CALLS[call](table, 2)


@pytest.mark.parametrize(
    "ids", [[1], {1}, np.array([1]), pa.array([1]), range(1, 2), (1,)], ids=str
)
def test_batches_are_asked_for_by_integers_of_any_kind(table: Table, ids: Any):
    """A list, a set, an array."""
    assert table.scan(batch_id=ids).to_arrow()["a"].to_pylist() == [2, 3]


@pytest.mark.parametrize("batch_id", [*NO_INTEGERS, 1.9, "1", None], ids=repr)
def test_no_batch_id_of_a_table_is_coerced(tmp_path: Path, batch_id: Any):
    """Nothing is published; NumPy's and Arrow's integers are taken."""
    table = Table.create(tmp_path / "t", pa.schema({"a": pa.int64()}))
    with pytest.raises(TypeError, match=r"^batch_id"):
        table.append_batch(batch_id, {"a": [1]})
    assert table.refresh().id == 0
    table.append_batch(np.int64(9), {"a": [1]})
    table.append_batch(pa.scalar(8), {"a": [2]})
    assert table.lookup_batch(np.int32(9))["a"].to_pylist() == [1]
    assert table.scan(batch_id=np.array(8)).count() == 1
