"""What owns uncommitted files is not copied: two owners would commit, or delete, them twice."""

from __future__ import annotations

import copy
import pickle

import pyarrow as pa
import pytest

from fermion_table import Table


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_transactions_and_writers_are_not_copied(copied, table_path):
    """A copied transaction committed its rows twice, and a forgotten copy deleted its files."""
    table = Table.create(table_path, pa.schema({"a": pa.int64()}), durability="fast")
    transaction = table.transaction()
    transaction.append({"a": [1]})
    with pytest.raises(TypeError, match="a Transaction can't be pickled or copied"):
        copied(transaction)
    transaction.commit()
    writer = table.writer()
    writer.write({"a": [2]})
    messages = writer.prepare_commit()
    with pytest.raises(TypeError, match="a DataWriter can't be pickled or copied"):
        copied(writer)
    table.commit(pickle.loads(pickle.dumps(messages)))
    assert Table.open(table_path).scan().to_arrow()["a"].to_pylist() == [1, 2]
