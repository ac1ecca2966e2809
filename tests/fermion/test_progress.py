"""Progress of writes and reads: on a terminal and in a notebook, and nowhere else."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from fermion import progress
from fermion_table import Table

BATCHES = [pa.record_batch({"id": [number]}) for number in range(5)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watching(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error as a terminal; set within the test, as pytest sets it before each."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SECONDS_BEFORE", 0.0)
    return found


def source() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(BATCHES[0].schema, iter(BATCHES))


def test_create_append_upsert_and_reads_show_progress_on_a_terminal(monkeypatch, tmp_path):
    """Each says what it does; rows are those without anybody who watches."""
    terminal = watching(monkeypatch)
    table = Table.create(tmp_path / "t", source(), durability="fast")
    assert "writing rows" in terminal.getvalue()
    keyed = Table.create(tmp_path / "k", BATCHES[0].schema, primary_key="id", durability="fast")
    for act, said in (
        (lambda: table.append(source()), "writing rows"),
        (lambda: keyed.upsert(source()), "writing rows"),
        (lambda: table.scan(threads=1).to_arrow(), "reading rows"),
    ):
        terminal.truncate(0)
        act()
        assert said in terminal.getvalue()
    assert table.count() == 10
    assert sorted(keyed.to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("why", ["pipe", "environment", "no rich", "thread", "quick"])
def test_nobody_who_watches_sees_nothing(tmp_path, monkeypatch, why):
    """In each of these the batches are handed on as they are."""
    terminal = watching(monkeypatch)
    if why == "pipe":
        monkeypatch.setattr(Terminal, "isatty", lambda self: False)
    elif why == "environment":
        monkeypatch.setenv("FERMION_PROGRESS", "0")
    elif why == "no rich":
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    elif why == "quick":
        monkeypatch.setattr(progress, "SECONDS_BEFORE", 1e9)

    def work() -> None:
        Table.create(tmp_path / "t", source(), durability="fast").scan().to_arrow()

    if why == "thread":
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    else:
        work()
    assert terminal.getvalue() == ""
    if why in ("pipe", "environment", "no rich"):
        assert progress.watched(BATCHES, "x") is BATCHES


def test_work_within_work_shows_one_bar(monkeypatch):
    """The inner one passes its batches on."""
    terminal = watching(monkeypatch)

    def inner() -> Iterator[pa.RecordBatch]:
        for batch in BATCHES:
            yield from progress.watched([batch, batch], "inner")

    assert sum(batch.num_rows for batch in progress.watched(inner(), "outer", BATCHES[0])) == 10
    assert "outer" in terminal.getvalue() or "inner" in terminal.getvalue()
    assert not ("outer" in terminal.getvalue() and "inner" in terminal.getvalue())
    stopped = iter(progress.watched(BATCHES, "stopped"))
    next(stopped)
    stopped.close()
    list(progress.watched(BATCHES, "after that"))
    assert "after that" in terminal.getvalue()


def test_a_bar_ends_with_its_total():
    """Of a table its rows, of a frame its length; else there is none."""
    pandas = pytest.importorskip("pandas")
    assert progress._rows_of(pa.table({"a": [1, 2]})) == 2
    assert progress._rows_of(pandas.DataFrame({"a": [1, 2, 3]})) == 3
    assert progress._rows_of(source()) == 0
    assert progress._rows_of(lambda: 7) == 7
