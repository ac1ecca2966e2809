"""Messages of Flight SQL: the bytes of protobuf, and errors for all other bytes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table.serving.messages import bare_field, read_message, written

URL = b"type.googleapis.com/arrow.flight.protocol.sql."


def envelope(kind: str, body: str) -> bytes:
    """An ``Any``, as the classes write it that protoc makes of FlightSql.proto."""
    url, data = URL + kind.encode(), bytes.fromhex(body)
    return (
        b"\x0a" + bytes([len(url)]) + url + (b"\x12" + bytes([len(data)]) + data if data else b"")
    )


@pytest.mark.parametrize(
    ("kind", "body", "values"),
    [
        ("CommandStatementQuery", "0a0b53454c4543542027c3a927", {"query": "SELECT 'é'"}),
        ("ActionCancelQueryResult", "0801", {"result": 1}),
        (
            "ActionCreatePreparedStatementResult",
            "0a01681201641a0170",
            {
                "prepared_statement_handle": b"h",
                "dataset_schema": b"d",
                "parameter_schema": b"p",
            },
        ),
    ],
)
def test_messages_have_the_bytes_that_other_implementations_write(
    kind: str, body: str, values: dict[str, Any]
) -> None:
    assert written(kind, **values) == envelope(kind, body)
    read = read_message(envelope(kind, body))
    assert read.kind == kind
    assert {name: read.values[name] for name in values} == values


def test_lists_flags_and_negative_numbers_are_read() -> None:
    tables = read_message(
        envelope("CommandGetTables", "0a0163120022055441424c452204564945572801")
    ).values
    assert tables == {
        "catalog": "c",
        "db_schema_filter_pattern": "",  # another filter than none
        "table_name_filter_pattern": None,
        "table_types": ("TABLE", "VIEW"),
        "include_schema": True,
    }
    assert read_message(envelope("CommandGetSqlInfo", "0a040001f403")).values["info"] == (0, 1, 500)
    assert read_message(envelope("CommandGetSqlInfo", "0807")).values["info"] == (7,)
    negative = envelope("CommandGetXdbcTypeInfo", "08fbffffffffffffffff01")
    assert read_message(negative).values["data_type"] == -5
    assert read_message(envelope("CommandGetTables", "")).values["table_types"] == ()
    long = written("TicketStatementQuery", statement_handle=bytes(300))
    assert read_message(long).values["statement_handle"] == bytes(300)


def test_fields_of_later_versions_and_messages_of_others_are_passed_over() -> None:
    later = envelope("CommandGetCatalogs", "7a0161a80105")
    assert read_message(later).values == {}
    assert read_message(envelope("CommandOfTheFuture", "0a0161")).values == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no Any"),
        (b"SELECT 1", "expected a message of Arrow Flight SQL"),
        (b"\x0a\x05abc", "it ends early"),
        (b"\x0a", "it ends early"),
        (b"\x0a" + b"\xff" * 11, "more than ten bytes"),
        (b"\x0d\x00\x00\x00\x00", "wire type 5"),
        (b"\x08\x01", "no Any"),
        (envelope("CommandStatementQuery", "0a02c328"), "query="),
        (envelope("CommandStatementQuery", "0801"), "query="),
        (envelope("CommandGetTables", "2a0161"), "include_schema="),
        (envelope("TicketStatementQuery", "0801"), "statement_handle=1"),
        (envelope("CommandGetXdbcTypeInfo", "0a0161"), "data_type="),
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        read_message(data)


def test_a_number_where_bytes_are_meant_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="a number in field 1"):
        bare_field(b"\x08\x01", 1)


@given(st.binary(max_size=200), st.sampled_from(["CommandGetTables", "CommandGetSqlInfo"]))
def test_any_bytes_are_a_message_or_our_error(data: bytes, kind: str) -> None:
    for given_data in (data, envelope(kind, data[:100].hex())):
        with suppress(InvalidArgumentError):
            read_message(given_data)
