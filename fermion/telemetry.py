"""OpenTelemetry spans and metrics: off, and of no cost, until `enable` is called.

What is measured asks `watching` whether anybody wants to know, and gives it numbers. Names and
attributes follow OpenTelemetry's conventions; the table is in ``docs/guide/logs.md``. Nothing here
imports OpenTelemetry before it is asked for.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fermion import version
from fermion.redaction import redacted, redacted_text

if TYPE_CHECKING:
    import pyarrow as pa
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

SWITCH = "FERMION_OTEL"
"""Environment variable: ``1`` enables it with OpenTelemetry's global providers."""
_COUNTERS = {
    "fermion.commit.retries": ("{retry}", "Tries of commits that another commit came before"),
    "fermion.commit.conflicts": ("{conflict}", "Commits that failed because of another commit"),
    "fermion.commit.rows": ("{row}", "Rows that commits added and removed"),
    "fermion.commit.io": ("By", "Bytes of data files that commits added and removed"),
    "fermion.scan.rows": ("{row}", "Rows that scans returned"),
    "fermion.query.rows": ("{row}", "Rows that clients of a server were sent"),
    "fermion.file.requests": ("{request}", "Reads of data files, after coalescing"),
    "fermion.file.io": ("By", "Bytes read of data files"),
    "fermion.storage.requests": ("{request}", "Calls of file systems of remote storages"),
    "fermion.cache.lookups": ("{lookup}", "Lookups in caches of metadata, by hit and miss"),
}
_DURATIONS = ("fermion.commit", "fermion.scan", "fermion.query", "fermion.compaction")


class Watching:
    """The spans and the instruments of one tracer and one meter.

    tracer_provider, meter_provider: Of OpenTelemetry; None: the global ones.
    Raises ImportError: OpenTelemetry's API is not installed.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        try:
            from opentelemetry import metrics, trace  # optional
        except ImportError as error:
            raise ImportError(
                "telemetry needs OpenTelemetry's API, which is not installed: "
                "pip install 'fermion[otel]'"
            ) from error
        self._failed = trace.StatusCode.ERROR
        self._tracer = trace.get_tracer("fermion", version.__version__, tracer_provider)
        meter = metrics.get_meter("fermion", version.__version__, meter_provider)
        self._counters = {
            name: meter.create_counter(name, unit=unit, description=text)
            for name, (unit, text) in _COUNTERS.items()
        }
        self._durations = {
            name: meter.create_histogram(f"{name}.duration", unit="s") for name in _DURATIONS
        }
        self._debt = meter.create_gauge(
            "fermion.compaction.debt",
            unit="By",
            description="Bytes of files that compaction has planned to rewrite and has not yet",
        )

    def count(self, name: str, amount: int, **attributes: Any) -> None:
        """Add to a counter; attributes get the prefix ``fermion.``."""
        self._counters[name].add(amount, _named(attributes))

    def debt(self, table: str, size: int) -> None:
        """Bytes that a compaction has still to rewrite."""
        self._debt.set(size, _named({"table": redacted(table)}))

    @contextlib.contextmanager
    def operation(self, name: str, table: str, **attributes: Any) -> Iterator[Span]:
        """A span around an operation on a table, and its duration as a histogram."""
        started = self._tracer.start_as_current_span(
            name, record_exception=False, set_status_on_exception=False
        )
        with started as span, self._timed(name, span, table, attributes):
            yield span

    def batches(
        self,
        name: str,
        batches: Iterator[pa.RecordBatch],
        table: str,
        io: Callable[[], Mapping[str, int]] = dict,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Batches as they are, in a span that ends with them.

        name: Of the span: what reads them.
        io: Requests and bytes so far.
        """
        span = self._tracer.start_span(name)  # not the current one of who reads on
        rows, before = 0, io()
        try:
            with self._timed(name, span, table, {}):
                for batch in batches:
                    rows += batch.num_rows
                    yield batch
        finally:
            self.count(f"{name}.rows", rows, table=redacted(table))
            read = {f"{name}.{key}": each - before[key] for key, each in io().items()}
            span.set_attributes({f"{name}.rows": rows, **read})
            span.end()

    @contextlib.contextmanager
    def _timed(
        self, name: str, span: Span, table: str, attributes: Mapping[str, Any]
    ) -> Iterator[None]:
        told = _named({"table": redacted(table), **attributes})
        span.set_attributes(told)
        began = time.perf_counter()
        try:
            yield
        except GeneratorExit:  # the caller has seen enough rows
            raise
        except BaseException as error:
            told["error.type"] = type(error).__qualname__
            span.set_attributes(told)
            span.set_status(self._failed, redacted_text(str(error)))
            raise
        finally:
            self._durations[name].record(time.perf_counter() - began, told)


def _named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {f"fermion.{name}": value for name, value in attributes.items()}


watching: Watching | None = None
"""Who wants to know; None: nobody."""


def enable(
    tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Report what Fermion does to OpenTelemetry, in this process, until `disable`.

    Parameters
    ----------
    tracer_provider, meter_provider
        Where spans and metrics go; None: OpenTelemetry's global providers, which
        ``opentelemetry-instrument`` sets up.

    Raises
    ------
    ImportError
        OpenTelemetry's API is not installed: ``pip install 'fermion[otel]'``.
    TypeError
        A provider that is none.
    """
    for name, provider, method in (
        ("tracer_provider", tracer_provider, "get_tracer"),
        ("meter_provider", meter_provider, "get_meter"),
    ):
        if provider is not None and not hasattr(provider, method):
            found = type(provider).__name__
            raise TypeError(f"{name}: expected a provider of OpenTelemetry, found {found}")
    global watching
    watching = Watching(tracer_provider, meter_provider)


def disable() -> None:
    """Report nothing any more."""
    global watching
    watching = None


def _switch_on() -> None:
    """As the environment says; a program that runs without OpenTelemetry goes on running."""
    if os.environ.get(SWITCH, "0").strip().lower() in ("1", "true", "on", "yes"):
        try:
            enable()
        except ImportError as error:
            warnings.warn(f"{SWITCH} is set, but {error}", RuntimeWarning, stacklevel=2)


_switch_on()
