"""All kinds of requests of the Flink connector, and the loop that answers them."""

from __future__ import annotations

from typing import BinaryIO

import pyarrow as pa

import fermion
from flink_ext import requests
from flink_ext.worker import catalog, following, reading, tables, writing


class Version(requests.Request, tag="version", kw_only=True):
    """Which version of Fermion this is."""

    def answer(self, worker: tables.Worker, rows: pa.Table | None) -> requests.Answer:
        """The version of the distribution."""
        return {"version": fermion.__version__}


KINDS: tuple[type[requests.Request], ...] = (
    Version,
    catalog.Namespaces,
    catalog.CreateNamespace,
    catalog.DropNamespace,
    catalog.Tables,
    catalog.GetTable,
    catalog.CreateTable,
    catalog.AlterTable,
    catalog.RenameTable,
    catalog.DropTable,
    tables.Describe,
    reading.Filters,
    reading.Aggregates,
    reading.Plan,
    reading.Read,
    following.Begin,
    following.RecordConsumer,
    following.PlanChanges,
    following.ReadChanges,
    writing.OpenSink,
    writing.Write,
    writing.Prepare,
    writing.CheckUser,
    writing.Commit,
)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer the requests of one task until its connection ends."""
    with tables.Worker() as worker:
        requests.serve(KINDS, worker, source, sink)
