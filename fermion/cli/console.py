"""Where commands print: lines, tables, JSON, sizes as text, warnings, progress on a terminal."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

import pyarrow as pa

from fermion.display import counted, printable
from fermion.progress import Report, bar
from fermion.reading.value_text import json_values

WIDTH = 120


class Console:
    """Standard output and standard error of a command.

    Names and values come from files that may be anyone's: characters that could move the cursor or
    change the screen are printed as escapes, and so is what the output's encoding lacks.
    """

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = out, err

    @property
    def width(self) -> int:
        """Columns of the terminal; 120 where there is none."""
        return shutil.get_terminal_size((WIDTH, 24)).columns if self._out.isatty() else WIDTH

    def print(self, line: str = "") -> None:
        """Print one line."""
        self._out.write(_encodable(printable(line), self._out) + "\n")

    def print_json(self, value: Any) -> None:
        """Print a value as JSON, indented."""
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
        if _encodable(text, self._out) != text:
            text = json.dumps(value, indent=2, allow_nan=False)
        self._out.write(text + "\n")

    def print_table(
        self, header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()
    ) -> None:
        """Print rows in columns of even width, those named in ``right`` aligned to the right."""
        cells = [[printable(cell) for cell in row] for row in (header, *rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            aligned = [
                cell.rjust(width) if name in right else cell.ljust(width)
                for cell, width, name in zip(row, widths, header, strict=True)
            ]
            self.print("  ".join(aligned).rstrip())

    def warn(self, message: str) -> None:
        """Print a warning on standard error."""
        self.complain(f"warning: {message}")

    def complain(self, message: str) -> None:
        """Print one line on standard error, with the program's name before it."""
        line = " ".join(message.split())
        self._err.write(_encodable(printable(f"fermion: {line}"), self._err) + "\n")
        self._err.flush()

    @contextlib.contextmanager
    def progress(self, label: str) -> Iterator[Report | None]:
        """A function that shows progress as ``(done, total)``; None where nobody would see it."""
        if not self._err.isatty():
            yield None
            return
        with bar(label, self._err) as report:
            yield report


def _encodable(text: str, stream: TextIO) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size: int) -> str:
    """Bytes as people read them: ``917 bytes``, ``1.4 MiB``."""
    if size < 1024:
        return counted(size, "byte")
    value = float(size)
    for unit in _UNITS:
        value /= 1024
        if value < 1023.95 or unit == _UNITS[-1]:
            break
    return f"{value:.1f} {unit}"


def rows_json(table: pa.Table) -> list[dict[str, Any]]:
    """A table's rows as JSON objects."""
    names = _unique_names(table.column_names)
    columns = [json_values(column) for column in table.columns]
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _unique_names(names: Sequence[str]) -> list[str]:
    """The names; one that was there before gets its ordinal, so that no value is lost."""
    seen: set[str] = set()
    unique = []
    for ordinal, name in enumerate(names):
        unique.append(f"{name}#{ordinal}" if name in seen else name)
        seen.add(name)
    return unique
