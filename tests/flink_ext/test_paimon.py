"""The worker of Paimon's file format answers requests about files, without Java."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fermion
from flink_ext.errors import BadRequest
from flink_ext.paimon import POSITION, expression, serve

ROWS = pa.table(
    {
        "i": pa.array([*range(9_999), None], pa.int64()),
        "t": pa.array([f"t{n:05}" for n in range(10_000)]),
        "d": pa.array([Decimal(n) / 4 for n in range(10_000)], pa.decimal128(10, 2)),
        "day": pa.array([dt.date(2020, 1, 1) + dt.timedelta(n % 365) for n in range(10_000)]),
        "at": pa.array([n * 1_000_001 for n in range(10_000)], pa.timestamp("us")),
        "f": pa.array([float("nan"), *range(9_999)], pa.float64()),
    }
)


def sent(request: dict[str, Any], rows: pa.Table | None = None) -> bytes:
    line = json.dumps(request | {"rows": rows is not None}).encode() + b"\n"
    if rows is None:
        return line
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return line + sink.getvalue()


def answers(*requests: bytes) -> list[tuple[dict[str, Any], pa.Table | None]]:
    sink = io.BytesIO()
    serve(io.BytesIO(b"".join(requests)), sink)
    sink.seek(0)
    found = []
    while line := sink.readline():
        answer = json.loads(line)
        rows = pa.ipc.open_stream(sink).read_all() if answer.get("rows") else None
        found.append((answer, rows))
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.fermion"
    fermion.write_table(ROWS, path)
    return path


def check_rows(path: Path) -> None:
    """A file has the rows; NaN is not equal to itself."""
    found = fermion.read_table(path)
    assert found.slice(1).equals(ROWS.slice(1))
    assert repr(found.slice(0, 1).to_pylist()) == repr(ROWS.slice(0, 1).to_pylist())


def test_a_file_is_written_in_batches_and_its_statistics_are_told(tmp_path: Path):
    path = tmp_path / "new.fermion"
    written = answers(
        sent({"op": "open", "path": str(path), "profile": "compact"}),
        sent({"op": "batch"}, ROWS.slice(0, 6000)),
        sent({"op": "batch"}, ROWS.slice(6000)),
        sent({"op": "finish"}),
    )
    check_rows(path)
    assert written[-1][0]["statistics"] == [
        [0, 9_998, 1],
        ["t00000", "t09999", 0],
        ["0.00", "2499.75", 0],
        [(dt.date(2020, 1, 1) - dt.date(1970, 1, 1)).days, 18262 + 364, 0],
        [[0, 0], [9_999_009, 999_000], 0],
        [None, None, 0],  # with NaN
    ]


def test_a_file_that_is_not_finished_goes(tmp_path: Path):
    path = tmp_path / "new.fermion"
    answers(sent({"op": "open", "path": str(path)}), sent({"op": "batch"}, ROWS))
    assert not path.exists()
    refused = answers(
        sent({"op": "open", "path": str(path), "profile": "none"}),
        sent({"op": "finish"}),
        sent({"op": "open", "path": str(path)}),
        sent({"op": "batch"}, ROWS),
        sent({"op": "finish"}),
    )
    assert [answer.get("kind") for answer, _ in refused] == [
        "InvalidArgumentError",
        BadRequest.__name__,
        None,
        None,
        None,
    ]
    check_rows(path)


FILTERS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "less": ({"is": "<", "column": "i", "value": 2}, [0, 1]),
    "equal": ({"is": "==", "column": "t", "value": "t00123"}, [123]),
    "decimal": ({"is": ">=", "column": "d", "value": "2499.5"}, [9_998, 9_999]),
    "time": ({"is": "<=", "column": "at", "value": [1000, 1000]}, [0, 1]),
    "in": ({"is": "in", "column": "i", "value": [5, 7, -1]}, [5, 7]),
    "null": ({"is": "null", "column": "i"}, [9_999]),
    "starts": ({"is": "starts_with", "column": "t", "value": "t0500"}, list(range(5000, 5010))),
    "and": (
        {
            "is": "and",
            "parts": [
                {"is": ">", "column": "i", "value": 9_000},
                {"is": "not_null", "column": "i"},
                {"is": "!=", "column": "t", "value": "t09001"},
                {"is": "<", "column": "day", "value": 18262 + 241},
                {"is": "<", "column": "f", "value": 0.0},  # has no counterpart, and is left out
            ],
        },
        [n for n in range(9_002, 9_999) if n % 365 < 241],
    ),
    "or": (
        {
            "is": "or",
            "parts": [
                {"is": "==", "column": "i", "value": 3},
                {"is": "==", "column": "day", "value": 1},
            ],
        },
        [3],
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_rows_that_a_filter_selects_come_with_their_positions(file: Path, name: str):
    filter, expected = FILTERS[name]
    ((_, rows),) = answers(
        sent({"op": "read", "path": str(file), "columns": ["t"], "filter": filter})
    )
    assert rows is not None
    assert rows[POSITION].to_pylist() == expected
    assert rows["t"].to_pylist() == [f"t{n:05}" for n in expected]


def test_parts_without_a_counterpart_select_all_rows():
    unknown = {"is": "<", "column": "f", "value": 0.5}
    finer = {"is": "==", "column": "at", "value": [0, 1]}
    known = {"is": "==", "column": "i", "value": 3}
    for part in (unknown, finer, {"is": "null", "column": "missing"}):
        assert expression(part, ROWS.schema) is None
        assert expression({"is": "or", "parts": [known, part]}, ROWS.schema) is None
        assert expression({"is": "and", "parts": [known, part]}, ROWS.schema) is not None


def test_selected_rows_are_read_with_a_filter_among_them(file: Path):
    request = {"op": "read", "path": str(file), "columns": ["i", "missing"]}
    selected = request | {"selection": [[3, 6], [9_000, 9_002]]}
    among = selected | {"filter": {"is": ">", "column": "i", "value": 4}}
    none = request | {"selection": []}
    found = [rows for _, rows in answers(*map(sent, (selected, among, none)))]
    assert [rows[POSITION].to_pylist() for rows in found if rows is not None] == [
        [3, 4, 5, 9_000, 9_001],
        [5, 9_000, 9_001],
        [],
    ]
    assert found[0] is not None
    assert found[0].schema.names == ["i", POSITION]


def test_a_request_without_columns_gives_the_number_of_rows(file: Path):
    ((_, rows),) = answers(sent({"op": "read", "path": str(file), "columns": []}))
    assert rows is not None
    assert rows.num_rows == ROWS.num_rows


def test_a_file_that_is_missing_or_damaged_is_refused_and_the_worker_goes_on(file: Path):
    broken = file.with_name("broken.fermion")
    broken.write_bytes(file.read_bytes()[:-300])
    request = {"op": "read", "columns": ["i"]}
    paths = [file.with_name("none.fermion"), broken, file]
    found = answers(*(sent(request | {"path": str(path)}) for path in paths))
    assert "none.fermion" in found[0][0]["error"]
    assert "broken.fermion" in found[1][0]["error"]
    assert found[2][1] is not None
