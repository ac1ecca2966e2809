"""The annotation of Variant columns in a Parquet footer, which pyarrow's writer has no way to give.

A footer is Thrift's compact protocol. Schema elements lie in depth-first order as its second field;
an annotation is their field 10, LogicalType, of which field 16 is VARIANT with its version 1.
"""

from __future__ import annotations

from collections.abc import Container

MAGIC = b"PAR1"
SCHEMA, NAME, CHILDREN, LOGICAL_TYPE = 2, 4, 5, 10
_VARIANT = b"\x0c\x20\x13\x01\x00\x00"
_STOP, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 3, 7, 8, 9, 10, 12


def annotated(tail: bytes, names: Container[str]) -> bytes:
    """The end of a Parquet file, with some top-level columns annotated as Variant.

    tail: Ends with the footer, its length and the magic bytes.
    Returns: ``tail`` itself where the footer is encrypted.
    """
    if not tail.endswith(MAGIC):
        return tail
    start = len(tail) - 8 - int.from_bytes(tail[-8:-4], "little")
    places = _places(tail[start:-8], names)
    parts, last = [tail[:start]], start
    for place, last_id in places:
        parts += [tail[last : start + place], bytes(((LOGICAL_TYPE - last_id) << 4 | _STRUCT,))]
        parts.append(_VARIANT)
        last = start + place
    footer_bytes = len(tail) - 8 - start + len(places) * (1 + len(_VARIANT))
    return b"".join([*parts, tail[last:-8], footer_bytes.to_bytes(4, "little"), MAGIC])


def _places(footer: bytes, names: Container[str]) -> list[tuple[int, int]]:
    """Where the schema elements of columns end, and the last field that each has."""
    reader, found, last_id = _Reader(footer), [], 0
    while True:
        kind, last_id = reader.field(last_id)
        if last_id == SCHEMA:
            break
        reader.skip(kind)
    count, _ = reader.list()
    below = 0  # schema elements that belong to the column before
    for at in range(count):
        name, children, element_last, stop = reader.element()
        if below:
            below += children - 1
        elif at:
            below = children
            if name.decode() in names and element_last < LOGICAL_TYPE:
                found.append((stop, element_last))
    return found


class _Reader:
    """Values of Thrift's compact protocol, of a footer that pyarrow has just written."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _number(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def field(self, last_id: int) -> tuple[int, int]:
        """The type and id of the next field; type 0 at the end of a struct."""
        byte = self._byte()
        if byte == _STOP:
            return _STOP, last_id
        return byte & 15, last_id + (byte >> 4) if byte >> 4 else self._number() >> 1

    def list(self) -> tuple[int, int]:
        """How many elements a list has, and of which type."""
        byte = self._byte()
        return (byte >> 4 if byte >> 4 < 15 else self._number()), byte & 15

    def element(self) -> tuple[bytes, int, int, int]:
        """A schema element: name, number of children, last field, where its end is."""
        name, children, last_id = b"", 0, 0
        while True:
            kind, next_id = self.field(last_id)
            if kind == _STOP:
                return name, children, last_id, self._at - 1
            last_id, start = next_id, self._at
            self.skip(kind)
            if last_id == NAME:
                value = self._data[start : self._at]
                name = value[len(value) - _Reader(value)._number() :] if value else b""
            elif last_id == CHILDREN:
                children = _Reader(self._data[start : self._at])._number() >> 1

    def skip(self, kind: int) -> None:
        """Go behind a value; booleans of fields have no bytes."""
        if kind == _BYTE:
            self._at += 1
        elif kind == _DOUBLE:
            self._at += 8
        elif kind == _BINARY:
            size = self._number()
            self._at += size
        elif kind in (_LIST, _SET):  # footers have no maps
            count, below = self.list()
            for _ in range(count):
                self.skip(below if below > 2 else _BYTE)
        elif kind == _STRUCT:
            last_id = 0
            while True:
                kind, last_id = self.field(last_id)
                if kind == _STOP:
                    return
                self.skip(kind)
        elif kind > 2:
            self._number()
