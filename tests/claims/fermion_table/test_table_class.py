"""`Table` as a class: one list of methods, each documented, over a state of its own."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
from pathlib import Path

import pyarrow as pa
import pytest

from fermion_table import Table

SCHEMA = pa.schema({"a": pa.int64()})
NAMES = sorted(name for name in dir(Table) if not name.startswith("_"))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "table", SCHEMA)


def test_a_table_is_composed_and_inherits_nothing():
    assert Table.__mro__ == (Table, object)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_its_documentation(name: str):
    assert (inspect.getattr_static(Table, name).__doc__ or "").strip()


def test_help_lists_every_method_with_its_own_name():
    """A method that another module defines under another name would be shown as an alias."""
    text = pydoc.plain(pydoc.render_doc(Table))
    for name in NAMES:
        method = getattr(Table, name)
        if callable(method):
            assert method.__name__ == name
            assert f" |  {name}(" in text


@pytest.mark.parametrize("of", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_a_copy_of_a_table_moves_on_by_itself(table: Table, of):
    """Both ways: neither sees what the other has committed before it is refreshed."""
    other = of(table)
    other.append({"a": [1]})
    assert (table.snapshot.id, other.snapshot.id) == (0, 1)
    other.add_columns({"b": pa.int64()})
    assert table.schema.names == ["a"]
    assert table.scan().count() == 0
    assert table.refresh().id == other.snapshot.id
    assert table.scan().count() == 1
    table.append({"a": [2], "b": [3]})
    assert other.scan().count() == 1
