"""A file that lies in memory."""

from __future__ import annotations

from typing import Any

from fermion.io.source import check_range


class BufferSource:
    """A file that lies in memory: any object with the buffer protocol."""

    is_local = True

    def __init__(self, buffer: Any, name: str = "<buffer>") -> None:
        self.name = name
        self._view = memoryview(buffer).cast("B")
        self.size: int | None = len(self._view)

    def read_end(self, length: int) -> memoryview:
        """The last ``length`` bytes, or the whole file when it has fewer; a view."""
        return self._view[max(0, len(self._view) - length) :]

    def read(self, offset: int, length: int) -> memoryview:
        """``length`` bytes from ``offset``; a view."""
        check_range(self.name, self.size, offset, length)
        return self._view[offset : offset + length]

    def again(self) -> BufferSource:
        """The same bytes."""
        return BufferSource(self._view, self.name)

    def close(self) -> None:
        """The buffer is the caller's."""


def buffer_of(given: Any, name: str) -> memoryview:
    """The bytes of an object with the buffer protocol; names the parameter if it has none."""
    try:
        return memoryview(given)
    except TypeError:
        raise TypeError(
            f"{name}: expected a path, a URL or an object with the buffer protocol, found "
            f"{type(given).__name__}"
        ) from None
