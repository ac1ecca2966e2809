"""Nodes of a page's tree of encodings, as they lie on disk; both directions.

A page's payload is a tree of nodes. A node is ``layout.NODE_HEADER`` (8 bytes), parameters, and
then its children; each part is zero-padded to 8 bytes, and the padding counts in ``length``:

====== ==== =========== ==============================================
offset size name        meaning
====== ==== =========== ==============================================
0      2    encoding    `EncodingId`
2      1    numChildren nodes that follow the parameters
3      1    flags       `NodeFlag`; 0 but at a page's root (see `removed_nulls`)
4      4    length      bytes after this header, a multiple of 8
8      ...  parameters  as the encoding says
...    ...  children    nodes
====== ==== =========== ==============================================

What is wrong raises `InvalidFileError` without a place; `fermion.pages.pages` adds file and offset.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fermion.errors import InvalidArgumentError, InvalidFileError, UnsupportedEncodingError
from fermion.layout import NODE_DEPTH_MAX, NODE_HEADER, EncodingId, NodeFlag

Buffer = Any
"""Anything that gives bytes without copying; typing has no name for it before Python 3.12."""

PageBuffer = bytes | bytearray | memoryview
"""What a page is read from."""

NODE_HEADER_SIZE = NODE_HEADER.itemsize
NODE_LENGTH_MAX = 0xFFFF_FFF8
_HEADER = struct.Struct("<HBBI")
_PADDING = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")


@dataclass(frozen=True, slots=True)
class Node:
    """A node found in a page.

    Attributes
    ----------
    encoding, num_children, flags
        As in the header.
    buffer
        The page, or what a zstd frame within it held.
    start, stop
        Where the parameters start in ``buffer``, and where the node ends (exclusive).
    depth
        1 for a page's root.
    """

    encoding: int
    num_children: int
    flags: int
    buffer: PageBuffer
    start: int
    stop: int
    depth: int

    def array(self, dtype: DTypeLike, count: int, start: int) -> np.ndarray:
        """A view of ``count`` values at position ``start`` of the buffer.

        Raises
        ------
        InvalidFileError
            They do not lie within this node.
        """
        found = np.dtype(dtype)
        self.check(start, count * found.itemsize)
        return np.frombuffer(self.buffer, found, count, start) if count else np.empty(0, found)

    def unpack(self, layout: struct.Struct) -> tuple:
        """The parameters at the node's start.

        Raises
        ------
        InvalidFileError
            The node is shorter than that.
        """
        self.check(self.start, layout.size)
        return layout.unpack_from(self.buffer, self.start)

    def check(self, start: int, size: int) -> None:
        """Raise `InvalidFileError` unless ``size`` bytes at ``start`` lie within this node."""
        if start < self.start or start + size > self.stop:
            name = encoding_name(self.encoding)
            raise InvalidFileError(
                f"{name} node at byte {self.start - NODE_HEADER_SIZE}: expected {size} bytes at "
                f"{start}, found the node's end at {self.stop}"
            )

    def child(self, start: int) -> Node:
        """The node at position ``start``, one level below this one."""
        return parse_node(self.buffer, start, self.stop, self.depth + 1)

    def expect_children(self, count: int) -> None:
        """Raise `InvalidFileError` unless the node has ``count`` children."""
        if self.num_children != count:
            raise InvalidFileError(
                f"{encoding_name(self.encoding)} node: expected {count} children, "
                f"found {self.num_children}"
            )


def parse_node(buffer: PageBuffer, start: int, stop: int, depth: int) -> Node:
    """Read the node header at ``start``; the node must end at or before ``stop``.

    Raises
    ------
    InvalidFileError
        The node does not fit, or lies deeper than ``NODE_DEPTH_MAX``.
    UnsupportedEncodingError
        A flag that this reader does not know.
    """
    if depth > NODE_DEPTH_MAX:
        raise InvalidFileError(f"encoding tree: expected at most {NODE_DEPTH_MAX} levels")
    if stop - start < NODE_HEADER_SIZE:
        raise InvalidFileError(
            f"encoding tree: expected a node of at least {NODE_HEADER_SIZE} bytes at byte {start}, "
            f"found {max(stop - start, 0)}"
        )
    encoding, num_children, flags, length = _HEADER.unpack_from(buffer, start)
    start += NODE_HEADER_SIZE
    if length % 8 or start + length > stop:
        raise InvalidFileError(
            f"encoding tree: node at byte {start - NODE_HEADER_SIZE} has length {length}, expected "
            f"a multiple of 8 up to {stop - start}"
        )
    if flags and (depth > 1 or flags != NodeFlag.NULLS_REMOVED):
        raise UnsupportedEncodingError(
            f"encoding tree: {encoding_name(encoding)} node has unknown flags {flags:#x}"
        )
    return Node(encoding, num_children, flags, buffer, start, start + length, depth)


def encoding_name(encoding: int) -> str:
    """The name of an encoding id, or the id itself where it is unknown."""
    try:
        return EncodingId(encoding).name.lower()
    except ValueError:
        return f"encoding {encoding}"


def node_parts(
    encoding: int,
    parameters: Sequence[Buffer],
    children: Sequence[list[Buffer]] = (),
    *,
    num_children: int | None = None,
) -> list[Buffer]:
    """A node as buffers to be joined: header, parameters, padding, children.

    Parameters
    ----------
    num_children
        For a node whose parameters hold its children in another form.

    Raises
    ------
    InvalidArgumentError
        The node would pass 4 GiB.
    """
    length = 0
    for part in parameters:
        length += part.nbytes if isinstance(part, np.ndarray) else len(part)
    padding = _PADDING[length & 7]
    length += len(padding)
    for child in children:
        length += node_size(child)
    if length > NODE_LENGTH_MAX:
        raise InvalidArgumentError(
            f"a page of {length} bytes: expected at most {NODE_LENGTH_MAX}; use smaller pages"
        )
    parts: list[Buffer] = [
        _HEADER.pack(encoding, len(children) if num_children is None else num_children, 0, length),
        *parameters,
    ]
    if padding:
        parts.append(padding)
    for child in children:
        parts.extend(child)
    return parts


def node_size(parts: Sequence[Any]) -> int:
    """Bytes of a node that `node_parts` made, header included."""
    return NODE_HEADER_SIZE + int.from_bytes(parts[0][4:8], "little")
