"""Requests over pipes: answers, refusals, rows both ways, and bytes that are no request."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from flink_ext.errors import BadRequest
from tests.kit.echo_worker import serve

ROWS = pa.table({"id": [1, 2, 3]})


def line(**request: Any) -> bytes:
    return json.dumps(request).encode() + b"\n"


def stream(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def answers(sent: bytes) -> list[Any]:
    """What a worker says to some bytes; a table for each stream."""
    sink = io.BytesIO()
    serve(io.BytesIO(sent), sink)
    sink.seek(0)
    said = []
    while text := sink.readline():
        said.append(json.loads(text))
        if said[-1].get("rows"):
            said.append(pa.ipc.open_stream(sink).read_all())
    return said


def test_requests_are_answered_in_their_order_and_share_a_state():
    said = answers(line(op="echo", text="a") + line(op="echo", text="b"))
    assert [(answer["text"], answer["before"]) for answer in said] == [("a", 0), ("b", 1)]


def test_rows_follow_a_request_and_the_next_request_follows_the_rows():
    sent = line(op="echo", text="a", rows=True) + stream(ROWS) + line(op="echo", text="b")
    assert [answer["rows_sent"] for answer in answers(sent)] == [3, None]


def test_rows_follow_an_answer_and_so_does_the_next_answer():
    first, rows, second = answers(line(op="count", to=3) + line(op="echo", text="b"))
    assert (first, second["text"]) == ({"to": 3, "rows": True}, "b")
    assert rows["n"].to_pylist() == [0, 1, 2]


def test_an_answer_without_rows_has_their_schema():
    _, rows = answers(line(op="count", to=0))
    assert rows.schema == pa.schema([("n", pa.int64())])
    assert rows.num_rows == 0


def test_what_fails_before_the_first_rows_is_a_refusal_and_the_worker_goes_on():
    refused, after = answers(line(op="count", to=3, fails_at=0) + line(op="echo", text="b"))
    assert refused == {"kind": "ArithmeticError", "error": "ArithmeticError: no number 0"}
    assert after["text"] == "b"


def test_rows_that_fail_later_break_the_stream():
    with pytest.raises(ArithmeticError, match="no number 2"):
        answers(line(op="count", to=3, fails_at=2))


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"\n", "no request"),
        (b"[1]\n", "no request"),
        (b'{"op": "echo", \xff}\n', "no request"),
        (line(op="nothing"), "nothing"),
        (line(op=3), "Expected `str`"),
        (line(text="a"), "missing required field `op`"),
        (line(op="echo"), "missing required field `text`"),
        (line(op="echo", text=1), r"Expected `str`, got `int` - at `\$.text`"),
        (line(op="count", to="3"), r"Expected `int`, got `str` - at `\$.to`"),
        (line(op="echo", text="a", rows="yes"), "no request"),
    ],
)
def test_a_request_that_is_none_is_refused_and_the_worker_goes_on(sent, expected):
    refused, after = answers(sent + line(op="echo", text="b"))
    assert refused["kind"] == "BadRequest"
    assert after["text"] == "b"
    with pytest.raises(AssertionError, match=expected):
        raise AssertionError(refused["error"])


def test_the_rows_of_a_refused_request_are_read_over():
    sent = line(op="nothing", rows=True) + stream(ROWS) + line(op="echo", text="b")
    refused, after = answers(sent)
    assert (refused["kind"], after["text"]) == ("BadRequest", "b")


@pytest.mark.parametrize("cut", [1, 4, 5, 8, 100, 300, -9, -1])
def test_a_truncated_stream_of_rows_ends_the_worker(cut):
    with pytest.raises(BadRequest, match="no Arrow stream follows"):
        answers(line(op="echo", text="a", rows=True) + stream(ROWS)[:cut])


def test_what_is_no_stream_ends_the_worker():
    with pytest.raises(BadRequest, match="no Arrow stream follows"):
        answers(line(op="echo", text="a", rows=True) + line(op="echo", text="b") * 50)


def test_half_a_line_ends_the_worker():
    with pytest.raises(BadRequest, match="5 bytes into a line"):
        answers(b'{"op"')


def test_a_pipe_that_nobody_reads_ends_the_worker_quietly():
    """More rows than a pipe holds; the reader goes away after the first bytes."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.kit.echo_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    worker.stdin.write(line(op="count", to=10_000))
    worker.stdin.flush()
    worker.stdout.read(10)
    worker.stdout.close()
    said = worker.stderr.read().decode()
    worker.stdin.close()
    assert (worker.wait(timeout=60), said) == (0, "")
    worker.stderr.close()


def test_what_a_worker_prints_is_no_answer():
    """It goes to standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.echo_worker"],
        input=line(op="echo", text="a") + line(op="die"),
        capture_output=True,
        check=False,
    )
    assert [json.loads(text) for text in done.stdout.splitlines()] == [
        {"text": "a", "before": 0, "rows_sent": None}
    ]
    assert done.stderr == b"dying as asked\n"
