"""The options of the format, and `access=` of the functions, reach the table's storage."""

from __future__ import annotations

import inspect

import pyarrow as pa
import pytest

import spark_ext
from fermion.errors import InvalidArgumentError
from fermion_table import StorageAccess, Table, UnsafeStorage
from spark_ext.datasource.source import FermionDataSource
from spark_ext.opening import open_branch, scan_of
from spark_ext.options import (
    FORMAT_USES,
    OPTIONS,
    SourceOptions,
    options_of,
    parse_options,
    table_options,
)
from spark_ext.types import spark_schema
from tests.kit.table_files import live_entries, naming

SCHEMA = pa.schema([("id", pa.int64())])

CHOSEN = StorageAccess(
    missing_is_forbidden=True, timeout_s=7.5, allowed_roots=["/data/a, b", "s3://other/place"]
)


def test_access_survives_the_way_through_options():
    """As a catalog hands it on to the data source; the defaults make no option."""
    handed = table_options("/t", None, CHOSEN)
    assert handed.keys() == {"path", "allowedRoots", "missingIsForbidden", "timeoutSeconds"}
    assert parse_options(handed).access == CHOSEN
    assert parse_options({"path": "t", "ALLOWEDROOTS": "/a, s3://b/c"}).access == StorageAccess(
        allowed_roots=["/a", "s3://b/c"]
    )
    assert table_options("/t", None, StorageAccess()) == {"path": "/t"}
    assert parse_options({"path": "t"}).access == StorageAccess()


def test_every_field_of_access_has_an_option():
    """A new field, which this fails for, needs one, and its place in `table_options`."""
    options = {"allowed_roots": "allowedRoots", "missing_is_forbidden": "missingIsForbidden"}
    options["timeout_s"] = "timeoutSeconds"
    assert options.keys() == inspect.signature(StorageAccess).parameters.keys()
    assert all(OPTIONS[name] == FORMAT_USES for name in options.values())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("allowedRoots", "relative"),
        ("allowedRoots", '["/a", 5]'),
        ("allowedRoots", '["/a"'),
        ("missingIsForbidden", "yes"),
        ("timeoutSeconds", "soon"),
        ("timeoutSeconds", "0"),
        ("timeoutSeconds", "nan"),
        ("timeoutSeconds", "inf"),
    ],
)
def test_wrong_values_are_refused_by_the_name_of_the_option(option, value):
    with pytest.raises(InvalidArgumentError, match=f"option {option}"):
        parse_options({"path": "t", option: value})


def test_the_format_reads_files_of_other_folders_where_an_option_allows_it(tmp_path):
    """Without the option, and with another folder, the reader refuses them."""
    source = Table.create(tmp_path / "source", SCHEMA)
    source.append({"id": [1, 2]})
    mine = Table.create(tmp_path / "mine", SCHEMA)
    mine.append({"id": [9]})
    (entry,) = live_entries(source.store, source.snapshot)
    naming(mine, source.store.locate(entry.path))
    schema = spark_schema(SCHEMA, where="test")

    def found(**options):
        reader = FermionDataSource({"path": mine.location, **options}).reader(schema)
        batches = [each for part in reader.partitions() for each in reader.read(part)]
        return sorted(pa.Table.from_batches(batches)["id"].to_pylist())

    assert found(allowedRoots=str(tmp_path / "source")) == [1, 2, 9]
    for options in ({}, {"allowedRoots": str(tmp_path / "other")}):
        with pytest.raises(UnsafeStorage, match="outside of the table"):
            found(**options)


def test_the_format_opens_a_table_with_the_access_of_its_options(tmp_path):
    """Of the table, its branch's store, and what is handed on from there."""
    path = str(tmp_path / "t")
    Table.create(path, SCHEMA)
    options = table_options(path, None, CHOSEN)
    FermionDataSource(options).schema()
    found = open_branch(parse_options(options))
    assert options_of(found.store) == options
    assert options_of(scan_of(SourceOptions(path=path, access=CHOSEN)).store) == options


def test_every_function_that_opens_a_table_takes_access():
    without = {"configure", "register", "training_frame"}  # the last is given tables
    for name in set(spark_ext.__all__) - without:
        assert "access" in inspect.signature(getattr(spark_ext, name)).parameters, name
