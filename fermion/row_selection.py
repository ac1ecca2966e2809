"""Rows of Arrow arrays by mask or number, also for types on which Arrow itself cannot do that."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fermion import rearrange
from fermion.arrow_types import Node
from fermion.assemble import assemble
from fermion.shred import shred


def filter_rows(array: pa.Array, mask: np.ndarray, node: Node | None) -> pa.Array:
    """The rows where ``mask``, bool of shape (rows,), is true; the array itself if it is all true.

    Parameters
    ----------
    node
        The tree of the array's type; None for a primitive type.
    """
    if mask.all():
        return array
    try:
        return array.filter(pa.array(mask))
    except pa.ArrowNotImplementedError:
        return _rearranged(array, np.flatnonzero(mask), node)


def take_rows(array: pa.ChunkedArray, indices: np.ndarray, node: Node | None) -> pa.ChunkedArray:
    """The rows with these numbers, int64, in their order, repeats allowed."""
    try:
        return array.take(pa.array(indices))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # the second: dictionaries with nulls
        return pa.chunked_array([_rearranged(array, indices, node)])


def _rearranged(
    array: pa.Array | pa.ChunkedArray, indices: np.ndarray, node: Node | None
) -> pa.Array:
    assert node is not None
    return assemble(node, rearrange.take(node, shred(array, node), indices))
