"""Slots of many encoding trees → one set of values, decoded in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fermion.encodings.dictionary import Dictionary
from fermion.encodings.protocol import (
    NODE_HEADER_SIZE,
    BinaryPlan,
    DecodeContext,
    Node,
    encoding_name,
)
from fermion.encodings.registry import ENCODINGS
from fermion.errors import FermionError, InvalidFileError
from fermion.layout import EncodingId
from fermion.values import BinaryValues, Bits, PhysicalKind, PhysicalType, Values, empty

Locate = Callable[[int, Exception], FermionError]
"""Makes the error to raise for the tree of this index out of the one that its encoding raised."""


@dataclass(frozen=True, slots=True)
class TreeSlice:
    """A tree, and the slots wanted of it.

    Attributes
    ----------
    root
        The tree's root.
    slots
        Slots of the tree.
    start, stop
        Slots wanted; at least one.
    output_bytes_max
        Bytes that strings of the tree may decode to.
    """

    root: Node
    slots: int
    start: int
    stop: int
    output_bytes_max: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def whole(self) -> bool:
        """Whether all slots are wanted."""
        return self.stop - self.start == self.slots

    def context(self, dictionary: Values | None = None) -> DecodeContext:
        """The context to decode the tree in."""
        return DecodeContext(ENCODINGS, dictionary, self.output_bytes_max)


def decode_trees(
    trees: Sequence[TreeSlice], physical: PhysicalType, dictionary: Values | None, locate: Locate
) -> Values:
    """The wanted slots of all trees, in order.

    Returns new arrays; for one whole plain tree a view of its buffer.

    Parameters
    ----------
    dictionary
        What DICTIONARY nodes refer to.
    locate
        Turns an error into the one to raise.
    """
    if not trees:
        return empty(physical)
    if physical.kind is PhysicalKind.BITS:
        return _decode_bits(trees, locate)
    if physical.kind is PhysicalKind.BINARY:
        return _decode_binary(trees, dictionary, locate)
    return _decode_fixed(trees, physical.dtype, dictionary, locate)


def _decode_fixed(
    trees: Sequence[TreeSlice], dtype: np.dtype, dictionary: Values | None, locate: Locate
) -> np.ndarray:
    out = np.empty(0, dtype)
    at = 0
    for index, tree in enumerate(trees):
        context = tree.context(dictionary)
        try:
            encoding = context.encoding(tree.root)
            if index == 0:
                if len(trees) == 1 and tree.whole:
                    view = encoding.view_fixed(tree.root, tree.slots, dtype)
                    if view is not None:
                        return view
                out = np.empty(sum([len(each) for each in trees]), dtype)
            own = out[at : at + len(tree)]
            encoding.read_fixed(tree.root, tree.slots, tree.start, tree.stop, own, context)
        except (FermionError, ValueError) as error:
            raise locate(index, error) from error
        at += len(tree)
    return out


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
            encoding.read_bits(tree.root, tree.slots, tree.start, tree.stop, out, at, context)
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
            plan = context.encoding(tree.root).plan_binary(
                tree.root, tree.slots, tree.start, tree.stop, own, context
            )
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


def decode_tree_codes(
    trees: Sequence[TreeSlice], physical: PhysicalType, dictionary: Values | None, locate: Locate
) -> tuple[np.ndarray, Values] | None:
    """The wanted slots of all trees as codes (``uint32``) and the one dictionary they share.

    None where there is none, or more than one.
    """
    kinds = {tree.root.encoding for tree in trees}
    local = kinds == {EncodingId.DICTIONARY_LOCAL} and len(trees) == 1
    if not local and kinds != {EncodingId.DICTIONARY}:
        return None
    dtype = None if physical.kind is PhysicalKind.BINARY else physical.dtype
    parts = []
    values = dictionary
    for index, tree in enumerate(trees):
        context = tree.context(dictionary)
        try:
            encoding = context.encoding(tree.root)
            assert isinstance(encoding, Dictionary)
            values = encoding.dictionary(tree.root, dtype, context)
            codes = encoding.codes(tree.root, tree.slots, tree.start, tree.stop, context)
            if int(codes.max()) >= len(values):
                raise InvalidFileError(
                    f"dictionary node: expected codes below {len(values)}, found {codes.max()}"
                )
            parts.append(codes)
        except (FermionError, ValueError) as error:
            raise locate(index, error) from error
    assert values is not None
    return np.concatenate(parts), values


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """One node of a tree, for people.

    Attributes
    ----------
    role
        What the node is to its parent: ``codes``, ``lengths``; ``root`` for the root.
    encoding
        The encoding's name.
    size
        Bytes, header and children included; of what is decompressed where a parent is ZSTD.
    slots
        Values that it holds.
    """

    role: str
    encoding: str
    size: int
    slots: int
    children: tuple[NodeDescription, ...] = ()


def describe_tree(tree: TreeSlice) -> NodeDescription:
    """Names and sizes of a tree's nodes.

    Raises
    ------
    InvalidFileError, UnsupportedEncodingError
        The tree is not well-formed.
    """
    return _describe("root", tree.root, tree.slots, tree.context())


def _describe(role: str, node: Node, slots: int, context: DecodeContext) -> NodeDescription:
    children = context.encoding(node).children(node, slots, context)
    return NodeDescription(
        role,
        encoding_name(node.encoding),
        node.stop - node.start + NODE_HEADER_SIZE,
        slots,
        tuple(_describe(*child, context) for child in children),
    )
