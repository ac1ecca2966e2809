"""The tables of docs/guide/options.md name every property and option, with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pytest

from fermion_table.schema import properties
from fermion_table.schema.key_options import parse_key_options
from fermion_table.schema.key_settings import KeySettings
from tools.option_tables import PAGE, with_tables

ROW = re.compile(r"^\| `([^`]+)` \| .* \|([^|]*)\|$", re.M)
TEXT = PAGE.read_text()


def rows_below(heading: str) -> dict[str, str]:
    """The properties of the table below a heading, and their defaults."""
    part = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return {name: default.strip() for name, default in ROW.findall(part)}


def test_the_tables_are_those_of_the_classes():
    """If not: `python -m tools.option_tables`."""
    assert with_tables(TEXT) == TEXT
    assert TEXT.count("\n| `") > 60


def test_the_properties_of_all_tables():
    names = {
        properties.TARGET_FILE_SIZE: properties.TARGET_FILE_BYTES,
        properties.WRITE_BUFFER_SIZE: properties.WRITE_BUFFER_BYTES,
        properties.COLUMN_FILES_MAX: properties.COLUMN_FILES_DEFAULT,
        properties.STATISTICS_COLUMNS: None,
        properties.PROFILE: None,
    }
    spelled = {
        value
        for name, value in vars(properties).items()
        if isinstance(value, str) and name.isupper()
    }
    assert spelled == set(names)
    documented = rows_below("Properties of all tables")
    assert set(documented) == set(names)
    for name, value in names.items():
        if value is not None:
            assert properties.parse_size(documented[name].strip("`")) == value


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The properties of primary-key tables that the code asks for, and the defaults it gives."""
    found: dict[str, str] = {}
    text, names, has = KeySettings.text, KeySettings.names, KeySettings.has

    def texts(settings: KeySettings, name: str, default: str) -> str:
        found[name] = found.get(name) or str(default)
        return text(settings, name, default)

    def columns(settings: KeySettings, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        found.setdefault(name, "")
        return names(settings, name, default)

    def there(settings: KeySettings, name: str) -> bool:
        found.setdefault(name, "")
        return has(settings, name)

    monkeypatch.setattr(KeySettings, "text", texts)
    monkeypatch.setattr(KeySettings, "names", columns)
    monkeypatch.setattr(KeySettings, "has", there)
    return found


def test_the_properties_of_tables_with_a_primary_key(asked: dict[str, str]):
    """What the code asks for, of each merge engine and with every kind of function."""
    item = pa.struct([("k", pa.int64())])
    schema = pa.schema(
        [
            *[("id", pa.int64()), ("s", pa.string()), ("c", pa.list_(pa.int64()))],
            *[("n", pa.list_(item)), ("v", pa.int64()), ("at", pa.timestamp("us"))],
        ]
    )
    functions = {"s": "listagg", "c": "collect", "n": "nested_update", "v": "sum"}
    aggregates = {f"fields.{name}.aggregate_function": each for name, each in functions.items()}
    for engine, more in {
        "deduplicate": {"record_level.expire_time": "1 d", "record_level.time_field": "at"},
        "partial_update": {"fields.v.sequence_group": "s,c"},
        "aggregation": aggregates,
        "first_row": {},
    }.items():
        parse_key_options({"merge_engine": engine, **more}, schema, ("id",))
    engines = r"^(deduplicate|partial_update|aggregation|first_row)\.ignore_delete$"
    known: dict[str, str] = {}
    for name, default in asked.items():
        plain = re.sub(r"^fields\.\w+\.", "fields.<column>.", name)
        if not re.match(engines, name):
            known[plain] = known.get(plain) or default.lower()
    documented = rows_below("Properties of tables with a primary key")
    groups = documented.pop("fields.<columns>.sequence_group")
    assert groups == ""
    assert set(documented) == set(known) - {"fields.<column>.sequence_group"}
    stated = {name: text.strip("`") for name, text in documented.items() if text.startswith("`")}
    assert len(stated) > 15
    assert stated == {name: known[name] for name in stated}
