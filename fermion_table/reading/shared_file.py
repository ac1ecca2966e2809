"""A data file that stays open while readers of different columns or rows read it in turn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate

import fermion
from fermion_table.planning.split import FileSplit, ReadRequest
from fermion_table.reading.split_reader import IoTotals, SplitReader, Uncounted


class FileAtHand:
    """The file that was asked for last. Not safe to share between threads.

    io: Counts a file when it is closed.
    """

    def __init__(self, io: IoTotals) -> None:
        self._io = io
        self._location = ""
        self._file: fermion.FermionFile | None = None

    def get(self, location: str, opened: Callable[[], fermion.FermionFile]) -> fermion.FermionFile:
        """The file, opened where another one is at hand."""
        if self._file is None or location != self._location:
            self.close()
            self._file, self._location = opened(), location
        return self._file

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            self._io.add(file)
            file.close()


class SharingReader(SplitReader):
    """Reads the file at hand."""

    __slots__ = ("_files",)

    def __init__(self, request: ReadRequest, reader: SplitReader, files: FileAtHand) -> None:
        super().__init__(request, io=Uncounted(), guard=reader.guard)
        self._files = files

    def stripe_starts(self, split: FileSplit) -> list[int]:
        """The first row of each stripe of a file."""
        with self._open(split, 1) as file:
            return list(accumulate(file.stripe_rows[:-1], initial=0))

    def _open(
        self, split: FileSplit, threads: int | None
    ) -> AbstractContextManager[fermion.FermionFile]:
        return nullcontext(self._files.get(split.location, lambda: self._opened(split, threads)))
