"""Columns of blobs as a query wants them: handles, or references, in place of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fermion.blobs import as_handles, handle_type, is_blob, stored_field
from fermion.errors import InvalidArgumentError
from fermion.options import BlobForm
from fermion_table.schema.conversion import Conversion


def wanted_field(field: pa.Field, form: BlobForm, storage_options: dict[str, Any] | None) -> Any:
    """What is given back of a field: a `pyarrow.Field`."""
    if not is_blob(field):
        return field
    if form == "references":
        return stored_field(field, "a table")
    return field.with_type(handle_type(storage_options))


def wanted_conversions(
    conversions: Sequence[Conversion], fields: Iterable[pa.Field]
) -> list[Conversion]:
    """The same to wanted fields, which files give for any binary type.

    Raises InvalidArgumentError: A file lacks a column that has a default.
    """
    made = []
    for each, field in zip(conversions, fields, strict=True):
        if is_blob(each.field):
            if each.constant is not None:
                raise InvalidArgumentError(f"column {field.name!r} of blobs: expected no default")
            each = replace(each, field=field, cast=False)
        made.append(each)
    return made


def with_handles(conversions: Sequence[Conversion], batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of a file with handles also where the file has plain values."""
    arrays = batch.columns
    for each in conversions:
        if each.source is not None and is_blob(each.field):
            arrays[each.source] = as_handles(arrays[each.source])
    return pa.RecordBatch.from_arrays(arrays, names=[""] * len(arrays))
