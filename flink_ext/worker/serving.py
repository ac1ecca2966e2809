"""All kinds of requests of the Flink connector, and the loop that answers them."""

from __future__ import annotations

from typing import Any, BinaryIO

import pyarrow as pa

import fermion
from flink_ext import requests


class Version(requests.Request, tag="version"):
    """Which version of Fermion this is."""

    def answer(self, worker: None, rows: pa.Table | None) -> requests.Answer:
        """The version of the distribution."""
        return {"version": fermion.__version__}


KINDS: tuple[type[Any], ...] = (Version,)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer the requests of one task until its connection ends."""
    requests.serve(KINDS, None, source, sink)
