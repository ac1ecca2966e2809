"""Progress of long work, where somebody watches: on a terminal, or in a notebook.

`bar` draws; `watched` passes on batches that are written or read, and shows how many rows they had
if that takes longer than a moment. It needs rich (the extra ``cli``), and shows nothing in pipes,
in threads and child processes, or with ``FERMION_PROGRESS=0``; `showing` decides it for one call.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from fermion.arguments import flag

if TYPE_CHECKING:
    import pyarrow as pa

SWITCH = "FERMION_PROGRESS"
"""Environment variable: ``0`` shows no progress of calls of this library; commands show theirs."""
SECONDS_BEFORE = 1.0
SECONDS_BETWEEN_UPDATES = 0.1
BAR_WIDTH = 30

Report = Callable[[int, int], None]
"""Called with what is done, and with the total; 0: that is not known."""
ShowsProgress = bool | Report | None
"""Of a call: show a bar or none, or call a function; None: a bar where somebody watches."""
_shown = threading.Lock()
_wanted: contextvars.ContextVar[ShowsProgress] = contextvars.ContextVar("progress", default=None)


def showing(progress: ShowsProgress) -> contextlib.AbstractContextManager[None]:
    """What a call asks for, of what it does in this thread in the context.

    Raises TypeError: Neither None, a flag nor a function.
    """
    if progress is not None and not callable(progress):
        progress = flag(progress, "progress")
    return _showing(progress)


@contextlib.contextmanager
def _showing(progress: ShowsProgress) -> Iterator[None]:
    token = _wanted.set(progress)
    try:
        yield
    finally:
        _wanted.reset(token)


@contextlib.contextmanager
def bar(label: str, stream: TextIO | None) -> Iterator[Report]:
    """A function that shows progress, with rich if it is there, until the context ends.

    stream: A terminal, or another place; None: the notebook that this runs in.
    """
    if importlib.util.find_spec("rich") is None:
        assert stream is not None
        with _plain_bar(label, stream) as report:
            yield report
        return
    # Optional (the extra `cli`), and slow to load.
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console() if stream is None else Console(file=stream)
    # In a pipe, where it was asked for, one line stays at the end.
    with Bar(console=console, transient=console.is_terminal or stream is None) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)


@contextlib.contextmanager
def _plain_bar(label: str, stream: TextIO) -> Iterator[Report]:
    shown = 0.0

    def report(done: int, total: int) -> None:
        nonlocal shown
        if time.monotonic() - shown < SECONDS_BETWEEN_UPDATES and done < total:
            return
        shown = time.monotonic()
        part = done / total if total else 1.0
        text = "#" * round(part * BAR_WIDTH)
        stream.write(f"\r{label} [{text:<{BAR_WIDTH}}] {part:4.0%}")
        stream.flush()

    try:
        yield report
    finally:
        stream.write("\r" + " " * (len(label) + BAR_WIDTH + 8) + "\r")
        stream.flush()


def watched(
    batches: Iterable[pa.RecordBatch], label: str, data: Any = None
) -> Iterable[pa.RecordBatch]:
    """Batches as they are, with a bar of their rows where somebody watches.

    data: What the batches are of: the total is its ``num_rows``, or its length, if it has one. Or a
        function that gives the total.
    """
    wanted = _wanted.get()
    if wanted is False or (wanted is None and not is_watched()):
        return batches
    total = _rows_of(data)
    if wanted is None or wanted is True:
        return _reporting(batches, label, total, 0.0 if wanted else SECONDS_BEFORE)
    return _told(batches, wanted, total)


@contextlib.contextmanager
def shown_bar(label: str) -> Iterator[Report]:
    """The bar of work that was asked to show one; on no terminal and in no notebook it shows none.

    It does not wait for a moment, as `watched` does; while another bar is shown it shows none.
    """
    if not is_watched() or not _shown.acquire(blocking=False):
        yield lambda done, total: None
        return
    try:
        with bar(label, None if _in_notebook() else sys.stderr) as report:
            yield report
    finally:
        _shown.release()


def is_watched() -> bool:
    """Whether a bar would be seen, and may be shown."""
    return (
        os.environ.get(SWITCH, "1") != "0"
        and (_in_notebook() or (sys.stderr is not None and sys.stderr.isatty()))
        and importlib.util.find_spec("rich") is not None
        and threading.current_thread() is threading.main_thread()
        and not _is_child()
    )


def _is_child() -> bool:
    """Whether multiprocessing, which is slow to import, started this process."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _in_notebook() -> bool:
    kernel = sys.modules.get("ipykernel.zmqshell")
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return kernel is not None and isinstance(shell, kernel.ZMQInteractiveShell)


def _rows_of(data: Any) -> int:
    rows = data() if callable(data) else getattr(data, "num_rows", None)
    if rows is None and hasattr(data, "__len__") and hasattr(data, "columns"):
        rows = len(data)
    return rows if isinstance(rows, int) else 0


def _told(
    batches: Iterable[pa.RecordBatch], report: Report, total: int
) -> Iterator[pa.RecordBatch]:
    done = 0
    for batch in batches:
        yield batch
        done += batch.num_rows
        report(done, total)


def _reporting(
    batches: Iterable[pa.RecordBatch], label: str, total: int, wait_s: float
) -> Iterator[pa.RecordBatch]:
    began, done = time.monotonic(), 0
    report: Report | None = None
    with contextlib.ExitStack() as stack:
        for batch in batches:
            if (
                report is None
                and time.monotonic() - began >= wait_s
                and _shown.acquire(blocking=False)
            ):
                stack.callback(_shown.release)  # one bar at a time: this work may be a part
                report = stack.enter_context(bar(label, None if _in_notebook() else sys.stderr))
                report(done, total)
            yield batch
            done += batch.num_rows
            if report is not None:
                report(done, total)
