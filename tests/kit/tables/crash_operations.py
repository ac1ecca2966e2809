"""Operations on a table in processes that get a signal right before a file operation.

Run as a program it forks a process for each line that it reads: name of the operation, number of
the file operation, the signal (SIGKILL, or SIGINT as Ctrl-C sends it), table. It answers with how
the process ended: 0, -9 when killed, 2 when interrupted.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fermion_table import Table

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
IMAGE = pa.field("image", pa.binary(), metadata={"fermion:blob": "true"})
AT_ONCE = timedelta(days=-1)
CHANGES_FILES = {"os.link", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate"}

OPERATIONS: dict[str, Callable[[Table], Any]] = {
    "append": lambda t: t.append({"k": ["n"] * 3, "v": [97, 98, 99]}),
    "append of images": lambda t: t.append(images(["n"] * 3, [97, 98, 99])),
    "batch append": lambda t: t.append_batches([(7, {"k": ["n"], "v": [98]}), (8, rows(99, 101))]),
    "overwrite": lambda t: t.overwrite({"k": ["n"], "v": [99]}, filter="v < 12"),
    "delete": lambda t: t.delete("v = 3 OR v >= 10"),
    "update": lambda t: t.update("v = 4", {"v": 104}),
    "merge": lambda t: merge(t),
    "compaction": lambda t: t.compact(threads=1),
    "expiry": lambda t: t.expire_snapshots(older_than=AT_ONCE, retain_last=1),
    "maintenance": lambda t: t.maintain(
        {"snapshot_age": "1 ms", "snapshots_min": 1, "orphan_age": "1 ms"}
    ),
    "merging append": lambda t: t.append({"k": ["n"], "v": [99], "w": [1]}, schema_mode="merge"),
    "transaction": lambda t: transact(t),
    "columns with values": lambda t: t.add_columns_with(
        lambda rows: {"w": pc.multiply(rows["v"], 2)},
        read=["v"],
        schema=pa.schema([("w", pa.int64())]),
        threads=1,
    ),
    "filled columns": lambda t: t.fill_columns({"v": [3, 12], "w": [-3, -12]}, on="v"),
    "schema change": lambda t: t.add_columns({"w": pa.int64()}),
    "undo": lambda t: t.undo(commit=t.snapshot.id),
    "clone": lambda t: t.clone(f"{t.location}-clone"),
}
KEYED_OPERATIONS: dict[str, Callable[[Table], Any]] = {
    "upsert": lambda t: t.upsert({"k": ["a0", "a1", "n"], "v": [97, 98, 99]}),
    "upsert of images": lambda t: t.upsert(images(["a0", "a1", "n"], [97, 98, 99])),
    "upsert of changes": lambda t: t.upsert(
        {"k": ["a0", "a1"], "v": [None, 98], "change": ["-D", "+U"]}, change_type="change"
    ),
    "deletion of keys": lambda t: t.delete_keys(["a0", "b1", "absent"]),
    "deletion of rows": lambda t: t.delete("v = 3 OR v >= 10"),
    "update of rows": lambda t: t.update("v = 4", {"v": 104}),
    "overwriting rows": lambda t: t.overwrite({"k": ["n"], "v": [99]}, filter="v < 12"),
    "transaction of upserts": lambda t: transact(t),
    "undo of an upsert": lambda t: t.undo(commit=t.snapshot.id),
    "compaction of runs": lambda t: t.compact(threads=1),
    "full compaction of runs": lambda t: t.compact(full=True, threads=1),
}
"""Operations on a primary-key table."""


def rows(first: int, end: int) -> pa.Table:
    """Rows of consecutive numbers."""
    return pa.table({"k": ["n"] * (end - first), "v": list(range(first, end))}, schema=SCHEMA)


def images(keys: Sequence[str], values: Iterable[int]) -> pa.Table:
    """Rows with blobs that lie in blob files."""
    rows = pa.table({"k": keys, "v": list(values)}, schema=SCHEMA)
    return rows.append_column(IMAGE, [pa.array([key.encode() * 5_000 for key in keys])])


def merge(table: Table) -> None:
    """Rows deleted, changed and added, by one commit."""
    source = {"k": ["a", "b", "n"], "v": [4, 12, 99]}
    changes = table.merge(source, on=["v"]).when_matched_delete("source.v = 4")
    changes.when_matched_update({"v": 112}).when_not_matched_insert().execute()


def transact(table: Table) -> None:
    """Rows added, deleted, changed and replaced, by one commit."""
    with table.transaction() as transaction:
        transaction.append({"k": ["n"], "v": [98]})
        transaction.delete("v = 2")
        transaction.update("v = 3", {"v": 97})
        transaction.overwrite({"k": ["n"], "v": [99]}, filter="v = 12")


def make_table(path: Path) -> None:
    """Three files, two with blobs, the first with a row deleted; a fourth one was overwritten."""
    table = Table.create(path, SCHEMA.append(IMAGE))
    table.append(images(["a"] * 10, range(10)))
    table.append(images(["b"] * 4, range(10, 14)))
    table.append({"k": ["c"] * 3, "v": range(14, 17)})
    table.overwrite({"k": ["c"] * 2, "v": range(14, 16)}, filter="v >= 14")
    table.delete("v = 0")


def make_keyed_table(path: Path) -> None:
    """Trees with blobs, a compacted run and newer ones, some rows of which are deletions."""
    settings = {"bucket": "2", "num_sorted_run.compaction_trigger": "2"}
    settings["changelog_producer"] = "input"
    table = Table.create(path, SCHEMA.append(IMAGE), primary_key="k", properties=settings)
    table.upsert(images([f"a{number}" for number in range(10)], range(10)))
    table.upsert(images([f"b{number}" for number in range(4)], range(10, 14)))
    table.compact(full=True)
    table.upsert({"k": ["a9", "b3", "c"], "v": [19, 23, 15]})
    table.delete_keys(["a8", "b0"])
    table.upsert({"k": ["a7", "b1"], "v": [17, 21]})


class Deadline:
    """Signals this process right before its n-th change of a file in a directory; fsync counts."""

    def __init__(self, number: int, directory: str, signal_number: int) -> None:
        self.left = number
        self.signal_number = signal_number
        self.directory = directory
        self.original = os.fsync
        os.fsync = self.fsync
        sys.addaudithook(self.hook)

    def fsync(self, descriptor: int) -> None:
        """What stands for `os.fsync`."""
        self.count()
        self.original(descriptor)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """See what Python is about to do."""
        if event == "open":
            path, _, flags = arguments
            changes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        else:
            path, changes = (arguments or ("",))[0], event in CHANGES_FILES
        if changes and isinstance(path, str) and path.startswith(self.directory):
            self.count()

    def count(self) -> None:
        """One more; the signal if it is the one."""
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.signal_number)


class Signaller:
    """Runs operations in processes that get a signal.

    Parameters
    ----------
    environment
        Of the processes.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, name: str, number: int, which: str, path: Path) -> bool:
        """Carry out an operation; whether the signal ended it, at its change of that number.

        Parameters
        ----------
        which
            ``SIGKILL`` or ``SIGINT``.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name}\t{number}\t{which}\t{path}\n")
        self.process.stdin.flush()
        status = int(self.process.stdout.readline())
        assert status in (0, 2 if which == "SIGINT" else -signal.SIGKILL), status
        return status != 0

    def run_until_done(
        self, name: str, numbers: Iterable[int], which: str, template: Path, directory: Path
    ) -> Iterator[tuple[int, Path]]:
        """Carry out an operation on copies of a table, signalled later and later.

        Yields
        ------
        tuple
            The number of the change before which the signal came, and the copy, which is deleted
            afterwards. The last one got no signal.
        """
        for number in numbers:
            path = directory / f"{number}"
            shutil.copytree(template, path)
            signalled = self.run(name, number, which, path)
            yield number, path
            shutil.rmtree(path)
            if not signalled:
                return
        raise AssertionError(f"{name}: never finished")

    def close(self) -> None:
        """End the program."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0


def serve() -> None:
    """Answer lines of operation, number, signal and table, separated by tabulators."""
    for line in sys.stdin:
        name, number, which, path = line.rstrip("\n").split("\t")
        child = os.fork()
        if child == 0:
            Deadline(int(number), path, signal.Signals[which])
            status = run(name, path)
            gc.collect()  # as a program that goes on after an interrupt does sooner or later
            os._exit(status)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(name: str, path: str) -> int:
    """Carry out an operation; the exit code."""
    try:
        (OPERATIONS | KEYED_OPERATIONS)[name](Table.open(path))
    except KeyboardInterrupt:
        return 2
    except BaseException as error:  # noqa: BLE001 - told by the exit code
        print(repr(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    serve()
