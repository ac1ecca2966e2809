"""A worker of the Flink connector in this process, which tests ask as the connector does."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa

from flink_ext.worker import serve


class Refused(Exception):
    """The worker refused a request."""


class Conversation:
    """What is sent, and what is answered; each `end` is one worker's life."""

    def __init__(self) -> None:
        self._sent = io.BytesIO()

    def ask(self, op: str, rows: pa.Table | None = None, **fields: Any) -> None:
        """Send a request, and rows after it."""
        request = {"op": op, **fields, **({"rows": True} if rows is not None else {})}
        self._sent.write(json.dumps(request).encode() + b"\n")
        if rows is not None:
            with pa.ipc.new_stream(self._sent, rows.schema) as stream:
                stream.write_table(rows)

    def end(self) -> list[Any]:
        """All answers: dictionaries, with what follows one under ``batches`` and ``table``."""
        sink = io.BytesIO()
        serve(io.BytesIO(self._sent.getvalue()), sink)
        self._sent = io.BytesIO()
        sink.seek(0)
        said = []
        while line := sink.readline():
            answer = json.loads(line)
            if answer.get("rows") is True:
                with pa.ipc.open_stream(sink) as stream:
                    answer["batches"] = list(stream)
                    answer["table"] = pa.Table.from_batches(answer["batches"], stream.schema)
            said.append(answer)
        return said


def ask(op: str, rows: pa.Table | None = None, **fields: Any) -> dict[str, Any]:
    """One request to a worker of its own.

    Raises
    ------
    Refused
    """
    conversation = Conversation()
    conversation.ask(op, rows, **fields)
    (answer,) = conversation.end()
    if "error" in answer:
        raise Refused(answer["error"])
    return answer
