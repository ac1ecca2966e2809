"""The extension type of Variant, as another library may register it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

STORAGE = pa.struct([pa.field(each, pa.binary(), nullable=False) for each in ("metadata", "value")])
NAME = "arrow.parquet.variant"
METADATA = {"ARROW:extension:name": NAME, "ARROW:extension:metadata": ""}


class Known(pa.ExtensionType):
    """Over metadata and value, and over what shredded files hold."""

    def __init__(self, storage: pa.DataType = STORAGE) -> None:
        super().__init__(storage, NAME)

    def __hash__(self) -> int:
        return hash((NAME, str(self.storage_type)))

    def __reduce__(self) -> tuple[Callable[..., Known], tuple[Any, ...]]:
        return Known, (self.storage_type,)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Known:
        return cls(storage)


def known_here() -> tuple[pa.DataType, bool]:
    """The type that this process knows, and whether it is ours, to be taken away again."""
    try:
        pa.register_extension_type(Known())
        is_ours = True
    except pa.ArrowKeyError:
        is_ours = False
    named = pa.schema([pa.field("", STORAGE, metadata=METADATA)])
    return pa.ipc.read_schema(named.serialize()).field(0).type, is_ours
