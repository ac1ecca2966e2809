"""Properties of tables, and the tables of docs/guide/options.md, which name every one of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.keys.settings import parse_key_options
from fermion_table.schema.properties import (
    OF_ALL_TABLES,
    OF_KEYED_TABLES,
    KeySettings,
    maintenance_policy,
    parse_properties,
    plain_name,
    property_of,
)
from tools.option_tables import PAGE, with_tables

TEXT = PAGE.read_text()


def test_the_tables_are_those_of_the_classes():
    """If not: `python -m tools.option_tables`."""
    assert with_tables(TEXT) == TEXT
    assert TEXT.count("\n| `") > 60


def test_every_property_of_a_primary_key_is_read_by_some_merge_engine(monkeypatch):
    """So no row of the documentation is about a property that does nothing."""
    read: set[str] = set()
    value = KeySettings.value

    def reading(settings: KeySettings, name: str, default: Any = None) -> Any:
        known = property_of(name)
        assert known is not None, name
        read.add(known.name)
        return value(settings, name, default)

    monkeypatch.setattr(KeySettings, "value", reading)
    item = pa.list_(pa.struct([("k", pa.int64())]))
    schema = pa.schema(
        [
            *[("id", pa.int64()), ("s", pa.string()), ("c", pa.list_(pa.int64()))],
            *[("n", pa.list_(item)), ("v", pa.int64()), ("at", pa.timestamp("us"))],
        ]
    )
    functions = {"s": "listagg", "c": "collect", "v": "sum"}
    aggregates = {f"fields.{name}.aggregate_function": each for name, each in functions.items()}
    for engine, more in {
        "deduplicate": {"record_level.expire_time": "1 d", "record_level.time_field": "at"},
        "partial_update": {"fields.v.sequence_group": "s,c"},
        "aggregation": aggregates,
        "first_row": {},
    }.items():
        parse_key_options({"merge_engine": engine, **more}, schema, ("id",))
    assert read == {known.name for known in OF_KEYED_TABLES}


@pytest.mark.parametrize("known", [*OF_ALL_TABLES, *OF_KEYED_TABLES], ids=lambda known: known.name)
def test_a_property_is_found_by_its_name_and_has_a_default_of_its_kind(known):
    name = known.name.replace("<columns>", "a,b").replace("<column>", "a.b")
    name = name.replace("<engine>", "first_row")
    assert property_of(name) is known
    assert plain_name(name.replace("_", "-") if "a.b" not in name else name) == name
    assert (known.value is None) == (known.default is None)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("write_bufer_size", "write_buffer_size"),
        ("write-bufer-size", "write_buffer_size"),
        ("profile", "file.profile"),
        ("files.profile", "file.profile"),
        ("fermion.profile", "file.profile"),
        ("target_size", "target_file_size"),
        ("colour", None),
    ],
)
def test_a_misspelt_property_is_refused_with_the_name_that_was_meant(name, meant, tmp_path):
    schema = pa.schema([("a", pa.int64())])
    with pytest.raises(InvalidArgumentError, match=f"{name!r} is not known") as refused:
        Table.create(tmp_path / "t", schema, properties={name: "1"})
    assert not (tmp_path / "t").exists()
    assert meant is None or f"did you mean {meant!r}?" in str(refused.value)
    table = Table.create(tmp_path / "t", schema, properties={f"team.{name}": "1"})
    with pytest.raises(InvalidArgumentError, match="is not known"):
        table.set_properties({name: "1"})
    assert table.properties == {f"team.{name}": "1"}


def test_names_of_all_tables_may_have_hyphens(tmp_path):
    """They were taken, and then not looked at."""
    schema = pa.schema([("a", pa.int64())])
    table = Table.create(tmp_path / "t", schema, properties={"target-file-size": "1MB"})
    assert parse_properties(table.properties).target_file_bytes == 1 << 20
    table.set_properties({"target_file_size": "2MB", "fermion.maintain.orphan-age": "5 d"})
    assert "target-file-size" not in table.properties
    assert parse_properties(table.properties).target_file_bytes == 2 << 20
    assert maintenance_policy(table.properties, None)["orphan_age"] == 5 * 86_400_000
    with pytest.raises(InvalidArgumentError, match="'target_file_size' is the same property"):
        table.set_properties({"target_file_size": "1MB", "target-file-size": "2MB"})
