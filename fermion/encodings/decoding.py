"""Slots of many encoding trees → one set of values, decoded in place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from fermion import kernels
from fermion.columns.types import BinaryValues, Bits, PhysicalKind, PhysicalType, Values, empty
from fermion.encodings.encoding import (
    NODE_HEADER_SIZE,
    BinaryPlan,
    DecodeContext,
    Node,
    Slots,
    parse_node,
)
from fermion.encodings.registry import ENCODINGS
from fermion.encodings.removed_nulls import Spread
from fermion.errors import FermionError, InvalidFileError
from fermion.exports import dataclass
from fermion.forks import ThreadPool
from fermion.io.checksum import PageChecks
from fermion.io.compression import decompress_padded
from fermion.layout import EncodingId

if TYPE_CHECKING:
    from fermion.encodings.dictionary import Dictionary

TREES_PER_TASK = 8

Locate = Callable[[int, Exception], FermionError]
"""Makes the error to raise for the tree of this index out of the one that its encoding raised."""


@dataclass(frozen=True, slots=True)
class TreeSlice:
    """A tree, and the slots wanted of it.

    slots: Slots of the tree.
    wanted: Those of the tree that are wanted. Apart only for numbers, fixed-width bytes and strings
        without ``spread``.
    output_bytes_max: Bytes that strings of the tree may decode to.
    spread: Where the tree's slots are only the valid ones of a page: which slots those are. The
        slots wanted of the page are then more than ``wanted``.
    """

    root: Node
    slots: int
    wanted: Slots
    output_bytes_max: int
    spread: Spread | None = None

    def __len__(self) -> int:
        return len(self.wanted) if self.spread is None else self.spread.slots

    @property
    def whole(self) -> bool:
        """Whether the tree's slots are the slots wanted."""
        return self.spread is None and len(self.wanted) == self.slots

    def context(self, dictionary: Values | None = None) -> DecodeContext:
        """The context to decode the tree in."""
        return DecodeContext(ENCODINGS, dictionary, self.output_bytes_max)


def decode_trees(
    trees: Sequence[TreeSlice],
    physical: PhysicalType,
    dictionary: Values | None,
    locate: Locate,
    executor: ThreadPool | None = None,
) -> Values:
    """The wanted slots of all trees, in order.

    Returns new arrays; for one whole plain tree a view of its buffer.

    dictionary: What DICTIONARY nodes refer to.
    locate: Turns an error into the one to raise.
    executor: Decodes trees of numbers and fixed-width bytes side by side; must not be the caller's
        own.
    """
    if not trees:
        return empty(physical)
    if physical.kind is PhysicalKind.BITS:
        return _decode_bits(trees, locate)
    if physical.kind is PhysicalKind.BINARY:
        return _decode_binary(trees, dictionary, locate)
    return _decode_fixed(trees, physical.dtype, dictionary, locate, executor)


def _decode_fixed(
    trees: Sequence[TreeSlice],
    dtype: np.dtype,
    dictionary: Values | None,
    locate: Locate,
    executor: ThreadPool | None,
) -> np.ndarray:
    first = trees[0]
    try:
        encoding = first.context().encoding(first.root)
        view = None
        if len(trees) == 1 and first.whole:
            view = encoding.view_fixed(first.root, first.slots, dtype)
        if view is not None:
            return view
        ends = np.cumsum([len(tree) for tree in trees], dtype=np.int64).tolist()
        out = np.empty(ends[-1], dtype)
    except (FermionError, ValueError) as error:
        raise locate(0, error) from error

    def decode(start: int) -> None:
        for index in range(start, min(start + TREES_PER_TASK, len(trees))):
            tree = trees[index]
            own = out[ends[index] - len(tree) : ends[index]]
            try:
                _read_tree(tree, own, tree.context(dictionary))
            except (FermionError, ValueError) as error:
                raise locate(index, error) from error

    run = map if executor is None or len(trees) <= TREES_PER_TASK else executor.map
    deque(run(decode, range(0, len(trees), TREES_PER_TASK)), maxlen=0)
    return out


def _read_tree(tree: TreeSlice, out: np.ndarray, context: DecodeContext) -> None:
    encoding, values = context.encoding(tree.root), out
    if tree.spread is not None:
        values = tree.spread.tail(out)
    if len(values) or tree.spread is None:
        encoding.read_fixed(tree.root, tree.slots, tree.wanted, values, context)
    if tree.spread is not None:
        tree.spread.restore(out)


def _decode_bits(trees: Sequence[TreeSlice], locate: Locate) -> Bits:
    total = sum([len(tree) for tree in trees])
    out = np.empty(0, np.uint8)
    at = 0
    for index, tree in enumerate(trees):
        context = tree.context()
        try:
            encoding = context.encoding(tree.root)
            if index == 0:
                if len(trees) == 1 and tree.whole:
                    view = encoding.view_bits(tree.root, tree.slots)
                    if view is not None:
                        return Bits(view, total)
                out = np.zeros((total + 7) // 8, np.uint8)
            where, bit = out, at
            if tree.spread is not None:
                where, bit = np.zeros((len(tree.wanted) + 7) // 8, np.uint8), 0
            if len(tree.wanted):
                assert isinstance(tree.wanted, range)
                encoding.read_bits(tree.root, tree.slots, tree.wanted, where, bit, context)
            if tree.spread is not None:
                tree.spread.restore_bits(where, out, at)
        except (FermionError, ValueError) as error:
            raise locate(index, error) from error
        at += len(tree)
    return Bits(out, total)


def _decode_binary(
    trees: Sequence[TreeSlice], dictionary: Values | None, locate: Locate
) -> BinaryValues:
    """Lengths of all trees first, then all bytes into one array."""
    offsets = np.empty(sum([len(tree) for tree in trees]) + 1, np.int64)
    plans: list[tuple[int, BinaryPlan]] = []
    at = base = 0
    for index, tree in enumerate(trees):
        context = tree.context(dictionary)
        own = offsets[at : at + len(tree) + 1]
        try:
            plan = _plan_binary(tree, own, context)
            context.check_output(plan.total)
        except (FermionError, ValueError) as error:
            raise locate(index, error) from error
        if base:
            own += base
        plans.append((base, plan))
        base += plan.total
        at += len(tree)
    if len(plans) == 1 and plans[0][1].data is not None:
        return BinaryValues(offsets, plans[0][1].data)
    data = np.empty(base, np.uint8)
    for index, (start, plan) in enumerate(plans):
        try:
            plan.write(data, start)
        except (FermionError, ValueError) as error:
            raise locate(index, error) from error
    return BinaryValues(offsets, data)


def _plan_binary(tree: TreeSlice, offsets: np.ndarray, context: DecodeContext) -> BinaryPlan:
    """Lengths into ``offsets``, which has one item more than the tree's slots wanted."""
    encoding, spread = context.encoding(tree.root), tree.spread
    if spread is None:
        return encoding.plan_binary(tree.root, tree.slots, tree.wanted, offsets, context)
    plan = BinaryPlan(0, np.empty(0, np.uint8))
    if len(tree.wanted):
        ends = offsets[len(offsets) - len(tree.wanted) - 1 :]
        plan = encoding.plan_binary(tree.root, tree.slots, tree.wanted, ends, context)
    # A null slot is empty: it ends where the one before it ends.
    offsets[0] = 0
    spread.restore(offsets[1:])
    return plan


def decode_tree_codes(
    trees: Sequence[TreeSlice], physical: PhysicalType, dictionary: Values | None, locate: Locate
) -> tuple[np.ndarray, Values] | None:
    """The wanted slots of all trees as codes (``uint32``) and the one dictionary they share.

    None where there is none, or more than one.
    """
    kinds = {tree.root.encoding for tree in trees if len(tree.wanted)}
    local = kinds == {EncodingId.DICTIONARY_LOCAL} and len(trees) == 1
    if not local and kinds not in ({EncodingId.DICTIONARY}, {EncodingId.GLOBAL_DICTIONARY}):
        return None
    dtype = None if physical.kind is PhysicalKind.BINARY else physical.dtype
    codes = np.zeros(sum([len(tree) for tree in trees]), np.uint32)
    values = dictionary
    at = 0
    for index, tree in enumerate(trees):
        own = codes[at : at + len(tree)]
        at += len(tree)
        if not len(tree.wanted):
            continue
        context = tree.context(dictionary)
        try:
            encoding = cast("Dictionary", context.encoding(tree.root))
            values = encoding.dictionary(tree.root, dtype, context)
            found = encoding.codes(tree.root, tree.slots, tree.wanted, context)
            if int(found.max()) >= len(values):
                raise InvalidFileError(
                    f"dictionary node: expected codes below {len(values)}, found {found.max()}"
                )
        except (FermionError, ValueError) as error:
            raise locate(index, error) from error
        if tree.spread is None:
            own[:] = found
        else:
            tree.spread.tail(own)[:] = found
            tree.spread.restore(own)
    assert values is not None
    return codes, values


def decode_numbers(
    data: memoryview,
    depth: int,
    letter: str,
    width: int,
    count: int,
    output_bytes_max: int,
    out: memoryview,
    slots: memoryview | None = None,
) -> None:
    """Values of one node of numbers or fixed-width bytes, for kernels that lack its encoding.

    data: The node, header included.
    depth: How deep it lies in its tree; 1 for the root.
    letter, width: NumPy's kind of the values, and their bytes.
    out: Written: ``width`` bytes a value.
    slots: The wanted ones, ``int64``, ascending; None: all.
    Raises InvalidFileError, UnsupportedEncodingError.
    """
    node = parse_node(data, 0, len(data), depth)
    context = DecodeContext(ENCODINGS, None, output_bytes_max)
    values = np.frombuffer(out, f"<{letter}{width}")
    wanted = range(count) if slots is None else np.frombuffer(slots, np.int64)
    context.encoding(node).read_fixed(node, count, wanted, values, context)


def page_reader(checks: PageChecks) -> kernels.PageReader:
    """How the kernels read pages of a file."""
    return kernels.PageReader(decode_numbers, decompress_padded, checks.is_crc32c, checks.place_key)


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """One node of a tree, for people.

    role: What the node is to its parent: ``codes``, ``lengths``; ``root`` for the root.
    size: Bytes, header and children included; of what is decompressed where a parent is ZSTD.
    slots: Values that it holds.
    """

    role: str
    encoding: str
    size: int
    slots: int
    children: tuple[NodeDescription, ...] = ()


def describe_tree(tree: TreeSlice) -> NodeDescription:
    """Names and sizes of a tree's nodes.

    Raises InvalidFileError, UnsupportedEncodingError: The tree is not well-formed.
    """
    return _describe("root", tree.root, tree.slots, tree.context())


def _describe(role: str, node: Node, slots: int, context: DecodeContext) -> NodeDescription:
    children = context.encoding(node).children(node, slots, context)
    return NodeDescription(
        role,
        context.encoding(node).name,
        node.stop - node.start + NODE_HEADER_SIZE,
        slots,
        tuple(_describe(*child, context) for child in children),
    )
