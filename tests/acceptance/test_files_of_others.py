"""Every file of parquet-testing and arrow-testing that pyarrow reads survives a round trip."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fermion
from fermion.errors import UnsupportedTypeError
from tests.conftest import SHARED_DATA

# pyarrow itself refuses these: two need a key, one has a map with nullable keys.
UNREADABLE = {
    "parquet-testing/data/encrypt_columns_and_footer.parquet.encrypted",
    "parquet-testing/data/incorrect_map_schema.parquet",
    "parquet-testing/data/uniform_encryption.parquet.encrypted",
}
PATTERNS = ["parquet-testing/data/**/*.parquet*", "arrow-testing/**/*.arrow_file"]
PATTERNS += ["arrow-testing/**/*.stream"]


def names(*, readable: bool) -> list[str]:
    """List the files, relative to the data directory; one placeholder if there is none."""
    found = {
        file.relative_to(SHARED_DATA).as_posix() for p in PATTERNS for file in SHARED_DATA.glob(p)
    }
    chosen = found - UNREADABLE if readable else found & UNREADABLE
    return sorted(chosen) or ["missing"]


def read_file(path: Path) -> pa.Table:
    """Read a Parquet file, an Arrow file or an Arrow stream."""
    if path.suffix == ".arrow_file":
        with pa.ipc.open_file(path) as reader:
            return reader.read_all()
    if path.suffix == ".stream":
        with pa.ipc.open_stream(path) as reader:
            return reader.read_all()
    with pq.ParquetFile(path) as file:
        return file.read()


def is_refused(data_type: pa.DataType) -> bool:
    """Tell whether a type that the format cannot hold lies anywhere within a type.

    These are the unions, and Arrow's two older interval types, which pyarrow itself can only carry.
    """
    if isinstance(data_type, pa.BaseExtensionType):
        return is_refused(data_type.storage_type)
    if pa.types.is_union(data_type) or str(data_type) in {"month_interval", "day_time_interval"}:
        return True
    if pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type):
        return is_refused(data_type.value_type)
    return any(is_refused(data_type.field(i).type) for i in range(data_type.num_fields))


def is_valid(table: pa.Table) -> bool:
    """Tell whether pyarrow calls every value valid: some of these files hold days of 25 hours."""
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def assert_same(found: pa.ChunkedArray, expected: pa.ChunkedArray, name: str) -> None:
    """Compare values; NaN, which equals nothing, and dictionaries are compared as Python prints."""
    assert len(found) == len(expected), name
    if not found.equals(expected):
        assert repr(found.to_pylist()) == repr(expected.to_pylist()), name


@pytest.mark.parametrize("name", names(readable=True))
def test_a_file_of_others_comes_back_equal_or_is_refused_by_type(name, shared_data, tmp_path):
    """Values, types, nullability, metadata; a refused type leaves no file."""
    expected = read_file(shared_data / name)
    path = tmp_path / "copy.fermion"
    if any(map(is_refused, expected.schema.types)):
        with pytest.raises(UnsupportedTypeError, match=r"union|interval"):
            fermion.write_table(expected, path)
        assert list(tmp_path.iterdir()) == []
        return

    info = fermion.write_table(expected, path)
    found = fermion.read_table(path)

    assert info.num_rows == expected.num_rows
    # In two steps, as ``check_metadata`` compares more: what a map calls its entries, {} and None.
    assert found.schema.equals(expected.schema)
    assert (found.schema.metadata or {}) == (expected.schema.metadata or {})
    for index, field in enumerate(expected.schema):
        assert (found.schema.field(index).metadata or {}) == (field.metadata or {})
        assert_same(found.column(index), expected.column(index), field.name)
    if is_valid(expected):
        found.validate(full=True)
        with fermion.open(path) as file:
            assert file.verify().ok


@pytest.mark.parametrize("name", names(readable=False))
def test_the_files_left_out_are_those_that_pyarrow_refuses(name, shared_data):
    with pytest.raises((OSError, pa.ArrowInvalid)):
        read_file(shared_data / name)
