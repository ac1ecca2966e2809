"""How data files are written: what a caller chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import fermion
from fermion.arguments import integer
from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import check_bool, check_kind
from fermion_table.metadata.manifest import Source
from fermion_table.writing.buffer_pool import BufferPool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How data files are written.

    Attributes
    ----------
    target_file_bytes
        A new file is begun when one has about this size; None takes the table's property.
    file_options
        Of every file; None takes the table's profile.
    threads
        That encode a file; None takes those of the file options.
    source
        What the entries say wrote them.
    keeps_order
        Whether rows are written in the order they come in, whatever the table's sort order.
    buffer_pool
        Of a table with a primary key: memory that the writer shares with other ones; None: it has
        a pool of its own, of the table's ``write_buffer_size``.
    """

    target_file_bytes: int | None = None
    file_options: fermion.WriteOptions | None = None
    threads: int | None = None
    source: Source = "append"
    keeps_order: bool = False
    buffer_pool: BufferPool | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if self.target_file_bytes is not None:
            size = integer(self.target_file_bytes, "target_file_bytes", minimum=1)
            object.__setattr__(self, "target_file_bytes", size)
        if self.file_options is not None:
            check_kind(self.file_options, fermion.WriteOptions, "file_options")
        if self.threads is not None:
            object.__setattr__(self, "threads", integer(self.threads, "threads", minimum=1))
        if self.source not in get_args(Source):
            expected = ", ".join(map(repr, get_args(Source)))
            raise InvalidArgumentError(f"source={self.source!r}: expected one of {expected}")
        object.__setattr__(self, "keeps_order", check_bool(self.keeps_order, "keeps_order"))
        if self.buffer_pool is not None:
            check_kind(self.buffer_pool, BufferPool, "buffer_pool")
