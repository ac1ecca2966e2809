"""What an encoding is: nodes as they lie on disk, recipes to write them, both directions' protocol.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fermion import kernels
from fermion.columns.types import BinaryValues, PhysicalKind, PhysicalType, Values
from fermion.errors import InvalidArgumentError, InvalidFileError, UnsupportedEncodingError
from fermion.exports import NamedTuple, dataclass
from fermion.layout import NODE_DEPTH_MAX, NODE_HEADER, Codec, EncodingId, NodeFlag

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

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

    buffer: The page, or what a zstd frame within it held.
    start, stop: Where the parameters start in ``buffer``, and where the node ends (exclusive).
    depth: 1 for a page's root.
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

        Raises InvalidFileError: They do not lie within this node.
        """
        found = np.dtype(dtype)
        self.check(start, count * found.itemsize)
        return np.frombuffer(self.buffer, found, count, start) if count else np.empty(0, found)

    def unpack(self, layout: struct.Struct) -> tuple:
        """The parameters at the node's start.

        Raises InvalidFileError: The node is shorter than that.
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

    Raises InvalidFileError: The node does not fit, or lies deeper than ``NODE_DEPTH_MAX``.
    Raises UnsupportedEncodingError: A flag that this reader does not know.
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

    num_children: For a node whose parameters hold its children in another form.
    Raises InvalidArgumentError: The node would pass 4 GiB.
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


@dataclass(frozen=True, slots=True)
class Recipe:
    """Which encoding to write, and how its children are to be encoded.

    encoding: The id of the node's encoding.
    children: One recipe a child, in the encoding's own order.
    """

    encoding: int
    children: tuple[Recipe, ...] = ()


PLAIN = Recipe(EncodingId.PLAIN)
BITMAP = Recipe(EncodingId.BITMAP)
CONSTANT = Recipe(EncodingId.CONSTANT)
FOR_BITPACK = Recipe(EncodingId.FOR_BITPACK)


def plain_recipe(physical: PhysicalType) -> Recipe:
    """What holds any values of this type."""
    return BITMAP if physical.kind is PhysicalKind.BITS else PLAIN


class Estimate(NamedTuple):
    """A way to encode a chunk, and about how many bytes it needs in all pages."""

    size: float
    recipe: Recipe


class Chooser(Protocol):
    """What an encoding may ask of the search for the best one, for its own estimate."""

    @property
    def nested(self) -> bool:
        """Whether the values are a child of another encoding; trees have to stay shallow."""

    @property
    def overhead(self) -> int:
        """Bytes of a node's headers in all pages of the chunk."""

    def child_numbers(self, values: np.ndarray, physical: PhysicalType) -> Estimate:
        """The best way to encode numbers that are a child."""

    def child_integers(self, sample: np.ndarray, scale: float) -> Estimate:
        """A light way to encode integers that are a child, ``scale`` times as many as sampled."""


@dataclass(frozen=True, slots=True)
class EncodeSettings:
    """Numbers that encoders need, derived from the profile.

    level: Level of every zstd frame or LZ4 block.
    block_slots: Values of one independently decodable block (pcodec).
    frame_bytes: Raw bytes that one compressed piece of a string page aims at.
    symbols_bytes: Raw bytes that one block of strings in symbols (FSST) aims at.
    codec: What the profile compresses with, and pages as a whole.
    learnt: What encoders found out from earlier pages of a chunk, by encoding; updated. None:
        nothing is carried from page to page.
    encodings: The registry, for encodings with children.
    """

    encodings: Mapping[int, Encoding]
    level: int = 3
    block_slots: int = 4096
    frame_bytes: int = 64 * 1024
    symbols_bytes: int = 4 * 1024
    codec: Codec = Codec.ZSTD
    learnt: dict[EncodingId, Any] | None = None

    def encode(self, values: Values, physical: PhysicalType, recipe: Recipe) -> list[Buffer]:
        """Encode ``values`` by ``recipe``; see `Encoding.encode`."""
        return self.encodings[recipe.encoding].encode(values, physical, recipe, self)


@dataclass(frozen=True, slots=True)
class DecodeContext:
    """What decoding a page needs besides the page.

    dictionary: The chunk's dictionary, for pages that refer to it.
    output_bytes_max: Bytes that a binary page may decode to.
    """

    encodings: Mapping[int, Encoding]
    dictionary: Values | None = None
    output_bytes_max: int = 2**63 - 1

    def encoding(self, node: Node) -> Encoding:
        """The encoding that a node names.

        Raises UnsupportedEncodingError: This reader does not know it.
        """
        found = self.encodings.get(node.encoding)
        if found is None:
            raise UnsupportedEncodingError(
                f"encoding id {node.encoding} is not known to this reader; "
                f"known are {', '.join(map(str, sorted(map(int, self.encodings))))}"
            )
        return found

    def numbers(self, node: Node, count: int, slots: Slots, dtype: DTypeLike) -> np.ndarray:
        """Some slots of a node of numbers or fixed-width bytes.

        Of a run a view of the page where the values lie there as they are, else a new array.
        """
        encoding = self.encoding(node)
        wanted = np.dtype(dtype)
        if isinstance(slots, range):
            view = encoding.view_fixed(node, count, wanted)
            if view is not None:
                return view[slots.start : slots.stop]
        out = np.empty(len(slots), wanted)
        if len(slots):
            encoding.read_fixed(node, count, slots, out, self)
        return out

    def strings(self, node: Node, count: int, slots: range) -> BinaryValues:
        """A run of slots of a node of strings."""
        offsets = np.zeros(len(slots) + 1, np.int64)
        if not slots:
            return BinaryValues(offsets, np.empty(0, np.uint8))
        plan = self.encoding(node).plan_binary(node, count, slots, offsets, self)
        if plan.data is not None:
            return BinaryValues(offsets, plan.data)
        self.check_output(plan.total)
        data = np.empty(plan.total, np.uint8)
        plan.write(data, 0)
        return BinaryValues(offsets, data)

    def values(self, node: Node, count: int, physical: PhysicalType) -> Values:
        """All values of a node of numbers, fixed-width bytes or strings."""
        if physical.kind is PhysicalKind.BINARY:
            return self.strings(node, count, range(count))
        return self.numbers(node, count, range(count), physical.dtype)

    def check_output(self, size: int) -> None:
        """Raise `InvalidFileError` where a page wants to decode to more bytes than allowed."""
        if size > self.output_bytes_max:
            raise InvalidFileError(
                f"encoding tree: expected to decode to at most {self.output_bytes_max} bytes, "
                f"found {size}"
            )


@dataclass(slots=True)
class BinaryPlan:
    """Strings whose lengths are decoded and whose bytes are not yet.

    total: Bytes of the values asked for.
    data: The bytes themselves where they lie in the page as they are (a view), else None.
    fill: Writes the bytes at ``data[base:base + total]``; None where ``data`` is given.
    """

    total: int
    data: np.ndarray | None = None
    fill: Callable[[np.ndarray, int], None] | None = field(default=None)

    def write(self, out: np.ndarray, base: int) -> None:
        """Write the bytes at ``out[base:base + total]``."""
        if self.data is not None:
            out[base : base + self.total] = self.data
        elif self.fill is not None:
            self.fill(out, base)


Child = tuple[str, Node, int]
"""A child's role, the child, and its slots."""

Slots = range | np.ndarray
"""Slots that are wanted: a run, or a few that lie apart: ``int64``, ascending, not empty."""


class Encoding:
    """One encoding, both directions; subclasses override what they can hold.

    ``count`` is always the node's slots, ``slots`` those wanted, each below ``count`` (checked by
    the caller).
    """

    id: int
    """Persisted in pages: never to change. `EncodingId` lists those of the specification."""
    name: str
    """What options, messages and inspection call it."""
    selectable = True
    """Whether an option may name it."""

    def holds(self, physical: PhysicalType) -> bool:
        """Whether it can hold values of a type, by itself or below another encoding."""
        return False

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        """How values that it holds are written where an option names it.

        codec: What the profile compresses with.
        """
        return Recipe(self.id)

    def estimate(self, values: Values, physical: PhysicalType, search: Chooser) -> Estimate | None:
        """What a chunk would need, found without encoding it, where nobody names an encoding.

        Asked for a chunk of some size whose values are not all the same, of a type that the
        encoding holds. The smallest estimate wins; of equals the first in the registry.

        Returns: None where it can't hold the values, or `fermion.encodings.choice.search` decides
            on it.
        """
        return None

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """Encode all of ``values`` as one node.

        Raises InvalidArgumentError: The values cannot be held by this encoding; the message says
            why.
        """
        raise InvalidArgumentError(f"encoding {self.name} cannot be written")

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        """Decode numbers or fixed-width bytes into ``out``, shape (len(slots),)."""
        raise self._mismatch(str(out.dtype))

    def pick_of_run(
        self, node: Node, count: int, slots: np.ndarray, out: np.ndarray, context: DecodeContext
    ) -> None:
        """`read_fixed` of slots that lie apart, for encodings that only know runs.

        It decodes everything from the first slot to the last.
        """
        run = range(*bounds_of(slots))
        values = context.numbers(node, count, run, out.dtype)
        kernels.gather_fixed(values, (slots - run.start).astype(np.uint32), out)

    def view_fixed(self, node: Node, count: int, dtype: np.dtype) -> np.ndarray | None:
        """All values as they lie in the page, aligned, without copying; None if they do not."""
        return None

    def read_bits(
        self,
        node: Node,
        count: int,
        slots: range,
        out: np.ndarray,
        bit: int,
        context: DecodeContext,
    ) -> None:
        """Decode booleans into the bits of ``out`` (``uint8``, zeroed) from ``bit`` on."""
        raise self._mismatch("bits")

    def view_bits(self, node: Node, count: int) -> np.ndarray | None:
        """All bits as they lie in the page, without copying; None if they do not."""
        return None

    def plan_binary(
        self, node: Node, count: int, slots: Slots, offsets: np.ndarray, context: DecodeContext
    ) -> BinaryPlan:
        """Decode the lengths of strings into ``offsets`` (``int64``, shape (len(slots) + 1,)).

        ``offsets`` starts at 0. The caller may add a base to it before `BinaryPlan.write`, which
        then gets the same base.
        """
        raise self._mismatch("binary")

    def children(self, node: Node, count: int, context: DecodeContext) -> list[Child]:
        """The children of a node, for inspection."""
        return []

    def _mismatch(self, what: str) -> InvalidFileError:
        return InvalidFileError(f"{self.name} node cannot hold values of type {what}")


def bounds_of(slots: Slots) -> tuple[int, int]:
    """The first slot, and the one behind the last."""
    if isinstance(slots, range):
        return slots.start, slots.stop
    return int(slots[0]), int(slots[-1]) + 1


def pick_strings(strings: BinaryValues, slots: np.ndarray, offsets: np.ndarray) -> BinaryPlan:
    """What `Encoding.plan_binary` gives, out of strings that are decoded; slots in any order."""
    codes = slots.astype(np.uint32, copy=False)
    total = kernels.gather_binary(strings.offsets, strings.data, codes, offsets)

    def fill(out: np.ndarray, base: int) -> None:
        kernels.gather_binary_data(
            strings.offsets, strings.data, codes, offsets, out[base : base + total]
        )

    return BinaryPlan(total, fill=fill)
