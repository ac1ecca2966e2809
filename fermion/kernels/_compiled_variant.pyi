"""Signatures and contracts of the kernels over JSON and single paths of Variant values, a part of
`_compiled`.

There is no module of this name at run time: only the signatures are too many for one file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

# Oracle: tests/fermion/variant/test_values.py::
# test_json_becomes_what_the_specification_says_and_json_again
def variant_from_json(
    texts: np.ndarray,
    ends: np.ndarray,
    bits: np.ndarray,
    meta_ends: np.ndarray,
    value_ends: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | tuple[int, int, str]:
    """Variant values of JSON texts.

    texts: ``uint8``, UTF-8.
    ends: ``int64``, shape (rows + 1,): where each text begins, and the last one ends.
    bits: Which texts are not null, an Arrow bitmap; empty: all of them. Others get no bytes.
    meta_ends, value_ends: ``int64``, shape (rows + 1,), written: as ``ends``, of the results.
    Returns: The bytes of metadata and of values, ``uint8``; or of the first text that is no JSON
        its row, the byte, and what is wrong.
    Raises ValueError: ``ends`` are out of order or lie outside, or a length does not fit.
    """

# Oracle: tests/fermion/variant/test_values.py::
# test_json_becomes_what_the_specification_says_and_json_again
def variant_to_json(
    metas: np.ndarray,
    meta_ends: np.ndarray,
    values: np.ndarray,
    value_ends: np.ndarray,
    other: Callable[[int, bytes], bytes],
    ends: np.ndarray,
) -> np.ndarray:
    """JSON texts of Variant values, end to end: ``uint8``. Holds the GIL.

    metas, meta_ends, values, value_ends: As of `variant_paths`, untrusted; values without bytes are
        null, and get no text.
    other: Gives the text of a primitive that is no null, boolean, integer or text: of the number of
        its type, and its bytes. An error of it says that they are no value.
    ends: ``int64``, shape (rows + 1,), written.
    Raises ValueError: Bytes that are no Variant value; names the row.
    """

# Oracle: tests/fermion/variant/test_values.py::
# test_a_path_gives_a_column
def variant_find(
    metas: np.ndarray,
    meta_ends: np.ndarray,
    values: np.ndarray,
    value_ends: np.ndarray,
    path: Sequence[bytes | int],
    kinds: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
) -> None:
    """Find the value at a path of each row. Holds the GIL.

    metas, meta_ends, values, value_ends: As of `variant_to_json`.
    path: Names of fields, and places of items from 0 on.
    kinds: ``uint8``, shape (rows,), written: the first byte of the value; 0xFF: there is none.
    starts, sizes: ``int64``, shape (rows,), written: where its bytes are among ``values``.
    Raises ValueError: Bytes that are no Variant value; names the row.
    """
