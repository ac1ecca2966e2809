"""A worker that says what it was asked, for tests of `flink_ext.daemon`."""

from __future__ import annotations

import os
import signal
from typing import Any, BinaryIO

import pyarrow as pa

from flink_ext.requests import Answer, Request, Rows, quiet_streams
from flink_ext.requests import serve as serve_requests


class Echo(Request, tag="echo"):
    """Says its text and how many requests there were before."""

    text: str

    def answer(self, worker: list[str], rows: pa.Table | None) -> Answer:
        worker.append(self.text)
        count = None if rows is None else rows.num_rows
        return {"text": self.text, "before": len(worker) - 1, "rows_sent": count}


class Count(Request, tag="count"):
    """Answers with batches of one number each; fails at one of them."""

    to: int
    fails_at: int = -1

    def answer(self, worker: list[str], rows: pa.Table | None) -> Answer:
        schema = pa.schema([("n", pa.int64())])
        return Rows(schema, (self._batch(number) for number in range(self.to)), {"to": self.to})

    def _batch(self, number: int) -> pa.RecordBatch:
        if number == self.fails_at:
            raise ArithmeticError(f"no number {number}")
        return pa.record_batch([pa.array([number])], names=["n"])


class Die(Request, tag="die"):
    """Kills the process."""

    def answer(self, worker: list[str], rows: pa.Table | None) -> Answer:
        print("dying as asked", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        return None


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """As `flink_ext.daemon` calls it."""
    history: list[Any] = []
    serve_requests((Echo, Count, Die), history, source, sink)


if __name__ == "__main__":
    serve(*quiet_streams())
