"""OpenTelemetry: spans and metrics of what tables do; nothing at all where nobody asked for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import fermion
from fermion_table import CommitConflict, Table
from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitRequest

ROWS = pa.table({"id": [1, 2, 3]})
PROGRAM = """
import sys, pyarrow as pa, fermion
from fermion_table import Table
calls = []
def seen(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.endswith("telemetry.py"):
        calls.append(frame.f_code.co_name)
table = Table.create(sys.argv[1], pa.table({"id": [1]}), durability="fast")
sys.setprofile(seen)
table.append(pa.table({"id": [2]}))
table.append(pa.table({"id": [3]}))
table.scan(filter="id > 1").to_arrow()
table.compact()
table.scan().count()
sys.setprofile(None)
print(calls, sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


class Collected:
    """Providers that keep what they are told in memory."""

    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider(metric_readers=[self.reader])

    def span(self, name: str) -> Any:
        (found,) = [each for each in self.spans.get_finished_spans() if each.name == name]
        return found

    def points(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        scopes = [scope for each in data.resource_metrics for scope in each.scope_metrics]
        assert {scope.scope.name for scope in scopes} == {"fermion"}
        return {
            metric.name: list(metric.data.data_points)
            for scope in scopes
            for metric in scope.metrics
        }

    def total(self, name: str, **attributes: Any) -> int:
        wanted = {f"fermion.{key}": value for key, value in attributes.items()}.items()
        return sum(each.value for each in self.points()[name] if wanted <= each.attributes.items())


@pytest.fixture
def collected() -> Iterator[Collected]:
    found = Collected()
    fermion.telemetry.enable(found.tracer_provider, found.meter_provider)
    yield found
    fermion.telemetry.disable()


def run(folder: Path, **variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", PROGRAM, str(folder / "t")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip() + done.stderr


def test_what_nobody_asked_for_calls_and_imports_nothing(tmp_path):
    """Counted by a profiler while a table is written, read and compacted."""
    assert run(tmp_path, FERMION_OTEL="0") == "[] []"


def test_the_environment_switches_it_on(tmp_path):
    """With the global providers, whatever they are."""
    said = run(tmp_path, FERMION_OTEL="1")
    assert "operation" in said
    assert "'opentelemetry.trace'" in said


def test_a_program_without_opentelemetry_goes_on_with_a_warning(tmp_path):
    """The variable says what somebody wishes, not what the program needs; `enable` raises."""
    (tmp_path / "opentelemetry.py").write_text("raise ImportError('hidden')")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    said = run(tmp_path, FERMION_OTEL="1", PYTHONPATH=paths)
    assert "pip install 'fermion[otel]'" in said
    assert said.startswith("[] []") or "[] ['opentelemetry']" in said


def test_a_commit_is_a_span_with_rows_bytes_and_retries(tmp_path, collected):
    """Retries are those of commits that another one came before."""
    table = Table.create(tmp_path / "t", ROWS.schema, durability="fast")
    other = Table.open(table.location, durability="fast")
    table.append(ROWS)
    collected.spans.clear()
    other.append(ROWS)
    span = collected.span("fermion.commit")
    assert span.attributes["fermion.table"] == table.location
    assert span.attributes["fermion.commit.kind"] == "append"
    assert span.attributes["fermion.snapshot.id"] == 2
    assert span.attributes["fermion.commit.retries"] == other.snapshot.effort.retries
    assert collected.total("fermion.commit.rows", change="added", kind="append") == 6
    assert collected.total("fermion.commit.io", change="added") == other.snapshot.totals.bytes
    assert sum(each.count for each in collected.points()["fermion.commit.duration"]) == 2


def test_a_commit_that_fails_is_an_error_and_a_conflict(tmp_path, collected):
    """Its span names the error; nothing is counted as written."""
    table = Table.create(tmp_path / "t", ROWS, durability="fast")
    base = table.snapshot
    table.delete("id > 0")
    with_rows = collected.total("fermion.commit.rows", change="added")
    collected.spans.clear()
    request = CommitRequest(kind="overwrite", removed=list(base.tail), base=base)
    with pytest.raises(CommitConflict):
        commit(table.store, request)
    span = collected.span("fermion.commit")
    assert span.attributes["error.type"] == "CommitConflict"
    assert span.status.status_code.name == "ERROR"
    assert collected.total("fermion.commit.conflicts") == 1
    assert collected.total("fermion.commit.rows", change="added") == with_rows


def test_a_scan_is_a_span_that_ends_with_its_batches(tmp_path, collected):
    """Also where the caller stops early; rows, requests and bytes are those of the scan."""
    table = Table.create(tmp_path / "t", ROWS, durability="fast")
    scan = table.scan()
    scan.to_arrow()
    span = collected.span("fermion.scan")
    assert span.attributes["fermion.scan.rows"] == 3
    assert span.attributes["fermion.scan.requests"] == scan.io_stats["requests"] > 0
    assert collected.total("fermion.file.requests") == scan.io_stats["requests"]
    assert collected.total("fermion.file.io") == scan.io_stats["bytes_requested"]
    collected.spans.clear()
    batches = table.scan().to_batches()
    next(batches)
    assert collected.spans.get_finished_spans() == ()
    batches.close()
    assert "error.type" not in collected.span("fermion.scan").attributes
    assert collected.total("fermion.scan.rows") == 6
    assert collected.total("fermion.cache.lookups", hit=True) > 0


def test_a_compaction_pays_its_debt(tmp_path, collected):
    """Bytes that it planned to rewrite, and none at its end; its commit is a part of it."""
    table = Table.create(tmp_path / "t", ROWS, durability="fast")
    table.append(ROWS)
    collected.spans.clear()
    table.compact()
    compaction = collected.span("fermion.compaction")
    assert collected.span("fermion.commit").parent.span_id == compaction.context.span_id
    assert collected.total("fermion.compaction.debt") == 0


def test_locations_show_no_credentials(tmp_path, collected):
    """As in messages: what tells secrets is left out."""
    with fermion.telemetry.watching.operation("fermion.commit", "s3://key:secret@bucket/t"):
        pass
    assert "secret" not in str(collected.span("fermion.commit").attributes)


def test_calls_of_remote_storages_are_counted_by_method(collected):
    """Each try is one."""
    table = Table.create("memory://telemetry/t", ROWS)
    assert collected.total("fermion.storage.requests") > 2
    assert table.count() == 3


def test_what_is_no_provider_is_refused():
    for arguments in ((1,), (None, "meter")):
        with pytest.raises(TypeError, match="provider"):
            fermion.telemetry.enable(*arguments)
    assert fermion.telemetry.watching is None
