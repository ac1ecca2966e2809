"""A local file that is mapped into memory instead of read."""

from __future__ import annotations

import mmap

from fermion.errors import file_is_closed, on_local_disk
from fermion.io.source import LocalSource, PathLike, check_range


class MappedSource(LocalSource):
    """A file of the local file system whose bytes are views of a mapping.

    The mapping lasts as long as a view of it. A file that is truncated, or whose disk fails, ends
    the process with SIGBUS when its bytes are looked at.
    """

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self._view: memoryview | None = memoryview(b"")
        if self.size:  # an empty file can't be mapped
            try:
                with on_local_disk("map", self.name):
                    mapping = mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_READ)
            except BaseException:
                self.close()
                raise
            self._view = memoryview(mapping)

    def read(self, offset: int, length: int) -> memoryview:
        """Exactly ``length`` bytes from ``offset``; a view of the mapping."""
        view = self._view
        if view is None:
            raise file_is_closed(self.name)
        check_range(self.name, self.size, offset, length)
        return view[offset : offset + length]

    def close(self) -> None:
        """Close the descriptor, and let go of the mapping; a second call does nothing."""
        self._view = None
        super().close()
