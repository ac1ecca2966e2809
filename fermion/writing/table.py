"""One call that writes any Arrow producer to one file."""

from __future__ import annotations

from typing import Any, Unpack

from fermion.columns.arrow_input import is_in_memory, record_batch_reader
from fermion.io.source import PathLike
from fermion.metadata.file_info import FileInfo
from fermion.options import WriteOptions, WriteOverrides, write_options
from fermion.writing.file import Writer


def write_table(
    data: Any,
    path: PathLike | Any,
    *,
    options: WriteOptions | None = None,
    storage_options: dict[str, Any] | None = None,
    **overrides: Unpack[WriteOverrides],
) -> FileInfo:
    """Write any Arrow producer to one file.

    Parameters
    ----------
    data
        A table, batch, reader, iterable of batches, data frame or ``__arrow_c_stream__`` object.
    path
        A path, an fsspec URL, or any object with ``write()``.
    options, overrides
        `WriteOptions`, and single options that replace theirs: ``profile="compact"``.

    Returns
    -------
    What was written.

    Raises
    ------
    UnsupportedTypeError, InvalidArgumentError
        Nothing is left at ``path`` then.
    """
    chosen = write_options(options).with_overrides(overrides)
    reader = record_batch_reader(data)
    with Writer(path, reader.schema, options=chosen, storage_options=storage_options) as writer:
        writer.write(reader, copy=not is_in_memory(data))
        return writer.close()
