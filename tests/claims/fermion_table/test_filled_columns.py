"""Columns that a file lacks are filled: what metadata alone says takes bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import fermion
from fermion.columns import filled
from fermion.columns.filled import check_filled, filled_bytes
from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.planning import split
from fermion_table.schema import changes

WIDEST = 2**31 - 1
FAR_TOO_WIDE = {
    "binary": f"pa.binary({WIDEST})",
    "list": f"pa.list_(pa.int64(), {WIDEST})",
    "nested lists": "pa.list_(pa.list_(pa.int64(), 2**16), 2**14)",
    "list of nulls": f"pa.list_(pa.null(), {WIDEST})",
    "struct": f"pa.struct([('x', pa.binary({WIDEST}))])",
    "required": f"pa.struct([pa.field('x', pa.binary({WIDEST}), False)])",
}
CHILD = """
import json, resource, sys
import pyarrow as pa
from fermion_table import Table
from fermion_table.schema import changes

changes.check_filled = lambda *given, **words: None  # as in a table that somebody else made
_, hard = resource.getrlimit(resource.RLIMIT_AS)
for name, dtype in json.loads(sys.argv[2]).items():
    table = Table.create(f"{sys.argv[1]}/{name}", pa.schema({"a": pa.int64()}), durability="fast")
    for rows in (2, 1000):
        table.append({"a": list(range(rows))})
    table.add_columns({"w": eval(dtype)})
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, hard))
    for call in (
        lambda: table.scan().to_arrow(),
        lambda: table.scan(columns=["w"]).head(1),
        lambda: next(iter(table.scan().to_batches())),
        lambda: table.append({"a": [1]}),
        lambda: table.update("a = 1", {"a": 5}),
        lambda: table.compact(threads=1),
        lambda: table.fill_columns({"a": [1], "b": [2]}, on="a") and table.scan().to_arrow(),
    ):
        try:
            call()
            print(f"{name}: no error")
        except Exception as error:
            print(f"{name}: {type(error).__name__} {error}")
    assert table.scan(columns=["a"]).count() == 1002
    assert table.scan(filter="w IS NULL").count() == 1002
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a child says of every type, with 1 GiB of address space left for each."""
    given = [str(tmp_path_factory.mktemp("wide")), json.dumps(FAR_TOO_WIDE)]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *given],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("dtype", FAR_TOO_WIDE)
def test_a_schema_alone_takes_no_gigabytes_where_files_lack_a_column(
    answers: list[str], dtype: str
) -> None:
    """Every way to the column is an error of ours."""
    said = [line.removeprefix(f"{dtype}: ") for line in answers if line.startswith(f"{dtype}: ")]
    assert len(said) == 7
    for line in said:
        assert line.startswith("InvalidArgumentError column 'w': rows without a value would be")


def test_a_column_whose_nulls_are_too_wide_can_not_be_added(tmp_path: Path) -> None:
    """Nor one with a default that is too long."""
    table = Table.create(tmp_path / "t", pa.schema({"a": pa.int64()}), durability="fast")
    for dtype in FAR_TOO_WIDE.values():
        with pytest.raises(InvalidArgumentError, match="add column 'w': rows without a value"):
            table.add_columns({"w": eval(dtype)})
    with pytest.raises(InvalidArgumentError, match=r"column 'w': .* 17,000,00\d bytes"):
        table.add_columns({"w": pa.string()}, defaults={"w": "x" * 17_000_000})
    assert table.schema.names == ["a"]


def test_batches_have_fewer_rows_where_what_files_lack_is_wide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nulls, defaults, and fields of structs count together; narrow ones change nothing."""
    monkeypatch.setattr(split, "FILLED_BATCH_BYTES", 2**20)
    schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int64())]))])
    table = Table.create(tmp_path / "t", schema, durability="fast")
    table.append({"a": list(range(3000)), "s": [{"x": 1}] * 3000})

    def sizes(*columns: str) -> set[int]:
        batches = list(table.scan(columns=["a", *columns]).to_batches())
        assert sum(batch.num_rows for batch in batches) == 3000
        return {batch.num_rows for batch in batches[:-1]}

    with table.update_schema() as update:
        update.add_column("narrow", pa.int64())
        update.add_column("wide", pa.binary(4096))
        update.add_column("text", pa.string(), default="x" * 4091)
        update.add_column(("s", "list"), pa.list_(pa.int8(), 4096))
    assert sizes("narrow") == set()
    assert sizes("wide") == sizes("text") == sizes("s") == {256}
    assert sizes("wide", "text") == {128}
    assert sizes("wide", "text", "s") == {85}
    found = table.scan(columns=["text"], filter="a = 2999").to_arrow()
    assert found["text"].to_pylist() == ["x" * 4091]
    table.append({"a": [3000]})
    table.compact(threads=1)
    assert table.scan(filter="wide IS NULL").count() == 3001
    assert table.verify(data=True).ok


@pytest.mark.parametrize(
    "dtype",
    [
        pa.binary(2**24 + 1),
        pa.list_(pa.int64(), 2**21 + 1),
        pa.list_(pa.list_(pa.int32(), 2**11), 2**12),
        pa.struct([("x", pa.binary(2**23)), ("y", pa.binary(2**23 + 1))]),
    ],
    ids=str,
)
def test_a_column_of_nulls_of_a_file_is_not_filled_with_wide_values(
    tmp_path: Path, dtype: pa.DataType
) -> None:
    """The file has no byte for them; other columns are read."""
    table = pa.table({"a": [1, 2], "w": pa.array([None, None], dtype)})
    fermion.write_table(table, tmp_path / "f")
    with fermion.open(tmp_path / "f") as file:
        assert file.read(["a"]).to_pylist() == [{"a": 1}, {"a": 2}]
        for read in (
            lambda: file.read(),
            lambda: list(file.iter_batches(batch_size=1)),
            lambda: file.take([1]),
        ):
            with pytest.raises(InvalidArgumentError, match=r"column 'w.*at most 16,777,216"):
                read()


def test_many_rows_of_wide_nulls_of_a_file_are_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"w": pa.nulls(1000, pa.binary(1000)), "n": pa.nulls(1000, pa.int64())})
    fermion.write_table(table, tmp_path / "f")
    monkeypatch.setattr(filled, "FILLED_BYTES_MAX", 500_000)
    with fermion.open(tmp_path / "f") as file:
        assert file.read(["n"]).num_rows == 1000
        with pytest.raises(InvalidArgumentError, match="read or write fewer rows at once"):
            file.read()
        assert file.read(rows=(200, 700)).num_rows == 500


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        (pa.int64(), 8), (pa.bool_(), 1), (pa.string(), 4), (pa.null(), 0), (pa.binary(7), 7),
        (pa.binary(WIDEST), WIDEST), (pa.list_(pa.int16(), 5), 10), (pa.list_(pa.bool_(), 9), 2),
        (pa.list_(pa.null(), 16), 2), (pa.list_(pa.binary(WIDEST)), 4), (pa.decimal128(5), 16),
        (pa.struct([("x", pa.int8()), ("y", pa.binary(9))]), 10),
        (pa.dictionary(pa.int16(), pa.binary(WIDEST)), 2), (pa.uuid(), 16),
        (pa.run_end_encoded(pa.int32(), pa.binary(WIDEST)), 0),
    ],
)  # fmt: skip
def test_bytes_of_nulls_follow_from_the_type(dtype: pa.DataType, width: int) -> None:
    assert filled_bytes(dtype) == width


def test_what_is_filled_has_two_limits() -> None:
    """For a value, and for an array of values that are not narrow."""
    check_filled(pa.int64(), 2**40)
    check_filled(pa.binary(2**24), 2**8)
    check_filled(pa.binary(2**24 + 1), 0)
    with pytest.raises(InvalidArgumentError, match="4,311,744,512 bytes"):
        check_filled(pa.binary(2**24), 2**8 + 1)
    with pytest.raises(InvalidArgumentError, match=r"c: rows .* 16,777,217 bytes"):
        check_filled(pa.binary(2**24 + 1), 1, "c")
    with pytest.raises(InvalidArgumentError, match="16,777,217 bytes"):
        check_filled(pa.string(), 1, value_bytes=2**24 + 1)
    assert changes.check_filled is check_filled
