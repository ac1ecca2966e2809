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


def test_a_call_says_itself_whether_its_progress_is_shown(monkeypatch, tmp_path):
    """True shows it in a pipe, at once; False does not on a terminal; neither for the next call."""
    terminal = watching(monkeypatch)
    for options, said in (({}, True), ({"progress": False}, False), ({"progress": None}, True)):
        terminal.truncate(0)
        table = Table.create(tmp_path / f"{options}", source(), durability="fast", **options)
        table.append(source(), **options)
        table.to_arrow(**options)
        table.scan(threads=1).to_arrow(**options)
        assert ("rows" in terminal.getvalue()) == said
    monkeypatch.setattr(Terminal, "isatty", lambda self: False)
    monkeypatch.setattr(progress, "SECONDS_BEFORE", 1e9)
    terminal.truncate(0)
    table.append(source(), progress=True)
    assert "writing rows" in terminal.getvalue()
    terminal.truncate(0)
    table.append(source())
    assert terminal.getvalue() == ""


def test_a_function_is_called_with_the_rows_that_are_done(monkeypatch, tmp_path):
    """Of a reader nobody knows how many there are; what is no function is refused first."""
    calls: list[tuple[int, int]] = []

    def told(done: int, total: int) -> None:
        calls.append((done, total))

    rows = pa.Table.from_batches(BATCHES)
    Table.create(tmp_path / "t", rows, durability="fast", progress=told)
    keyed = Table.create(tmp_path / "k", rows.schema, primary_key="id", durability="fast")
    keyed.upsert(source(), progress=told)
    keyed.to_arrow(progress=told)
    assert calls == [*((n, 5) for n in range(1, 6)), *((n, 0) for n in range(1, 6)), (5, 5)]
    for call in (keyed.append, keyed.upsert):
        with pytest.raises(TypeError, match="progress=5: expected True or False"):
            call(rows, progress=5)
    with pytest.raises(TypeError, match="progress='yes'"):
        Table.create(tmp_path / "new", rows, progress="yes")
    assert not (tmp_path / "new").exists()
    assert keyed.refresh().id == 1
