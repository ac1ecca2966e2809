"""The conversation with a JVM: lines of JSON, and Arrow IPC streams after some of them.

A request is a line ``{"op": ..., ...}``; ``"rows": true`` in it says that an Arrow stream follows.
An answer is a line, after which a stream follows if ``"rows"`` is true there. An answer with
``error`` (text) and ``kind`` (class of the error) refuses a request, and changes nothing else: the
worker goes on. Rows that fail after their first batch, and bytes that are no request, end it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from fermion.exports import dataclass
from flink_ext.errors import BadRequest

REQUEST_BYTES_MAX = 1 << 30
"""Of the line of a request: a commit of very many files is the longest."""


@dataclass(frozen=True, slots=True)
class Rows:
    """An answer that rows follow.

    schema: Of all batches.
    batches: Their number is not known before.
    fields: What the line says besides.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    fields: dict[str, Any] = field(default_factory=dict)


Answer = dict[str, Any] | Rows | None


class Request(msgspec.Struct, tag_field="op", forbid_unknown_fields=True, kw_only=True):
    """A kind of request: further fields are its arguments, the tag is its ``op``.

    rows: Whether an Arrow stream follows.
    """

    rows: bool = False

    def answer(self, worker: Any, rows: pa.Table | None) -> Answer:
        """Do what is asked.

        worker: What the worker keeps between requests.
        rows: Those that followed the request; None: none did.
        """
        raise NotImplementedError  # a struct of msgspec can't be abstract; each request has its own


class BrokenStream(BadRequest):
    """Bytes that should be an Arrow stream are none."""


class _Envelope(msgspec.Struct):
    """What of a request tells where the next one begins."""

    rows: bool = False


def serve(kinds: Iterable[type[Request]], worker: Any, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until the source ends.

    kinds: Of requests: see `Request`.
    worker: What they share.
    source, sink: Of the other side. Nothing else may read or write there.
    Raises BadRequest: The source ends within a request, or what should be an Arrow stream is none:
        where the next request begins is not known.
    """
    decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(reduce(or_, kinds))
    while line := source.readline(REQUEST_BYTES_MAX):
        if not line.endswith(b"\n"):
            raise BadRequest(f"the other side ended, or went on, {len(line):,} bytes into a line")
        try:
            answer: Answer = _answered(line, decoder, worker, source)
        except BrokenStream:
            raise
        except Exception as error:  # noqa: BLE001 - the JVM raises it
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}", "kind": type(error).__name__}
        try:
            _send(answer, sink)
        except (BrokenPipeError, ConnectionResetError):
            return  # the other side has given up


def _answered(
    line: bytes, decoder: msgspec.json.Decoder[Request], worker: Any, source: BinaryIO
) -> Answer:
    try:
        rows = _rows_after(source) if msgspec.json.decode(line, type=_Envelope).rows else None
    except msgspec.DecodeError as error:
        raise BadRequest(f"no request: {error}; it begins with {line[:80]!r}") from error
    try:
        request = decoder.decode(line)
    except msgspec.DecodeError as error:
        raise BadRequest(f"request {line[:200]!r}: {error}") from error
    answer = request.answer(worker, rows)
    if isinstance(answer, Rows):
        first = next(answer.batches, None)  # what fails before the first rows is a refusal
        batches = iter(()) if first is None else chain((first,), answer.batches)
        return Rows(answer.schema, batches, answer.fields)
    return answer


def _rows_after(source: BinaryIO) -> pa.Table:
    try:
        with pa.ipc.open_stream(source) as stream:
            return stream.read_all()
    except (pa.ArrowException, OSError) as error:
        raise BrokenStream(f"no Arrow stream follows the request: {error}") from error


def _send(answer: Answer, sink: BinaryIO) -> None:
    fields = answer.fields if isinstance(answer, Rows) else answer or {}
    line = {**fields, "rows": True} if isinstance(answer, Rows) else fields
    sink.write(msgspec.json.encode(line) + b"\n")
    if isinstance(answer, Rows):
        with pa.ipc.new_stream(sink, answer.schema) as stream:
            for batch in answer.batches:
                stream.write_batch(batch)
    sink.flush()


def quiet_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for a conversation; what else is printed goes to standard error."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    return source, sink
