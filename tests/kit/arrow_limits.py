"""What Arrow itself can't do, so that no test asks for it."""

from __future__ import annotations

import pyarrow as pa


def message_can_hold(schema: pa.Schema) -> bool:
    """Whether Arrow's IPC format can: it cannot hold dictionaries of extension types, say."""
    try:
        return pa.ipc.read_schema(schema.serialize()).equals(schema, check_metadata=True)
    except pa.ArrowException:
        return False


def has_nested_wrappers(dtype: pa.DataType, wrapped: bool = False) -> bool:
    """Whether dictionaries or run-end encoding hold such types again, or extensions, in values.

    Arrow ends the process on some scalars of such types, and its streams lose others.
    """
    if isinstance(dtype, pa.BaseExtensionType):
        return wrapped or has_nested_wrappers(dtype.storage_type)
    if pa.types.is_dictionary(dtype) or pa.types.is_run_end_encoded(dtype):
        return wrapped or has_nested_wrappers(dtype.value_type, True)
    children = [dtype.field(at).type for at in range(dtype.num_fields)]
    return any(has_nested_wrappers(child, wrapped) for child in children)
