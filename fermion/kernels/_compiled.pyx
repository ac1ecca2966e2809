# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Hot loops over values, compiled: no policy, no input or output, the GIL released.

Ids and sizes of records come from `fermion.layout`; thresholds are arguments.
Every function checks all lengths and ranges once, before its loop; `tests/kit` holds the same
functions in NumPy. Inputs may be read-only, of any alignment and empty. The parts are included
below, one file an idea.
"""

cimport cython
cimport numpy as cnp
from libc.stdint cimport (
    INT64_MAX,
    INT64_MIN,
    UINT32_MAX,
    int8_t,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
    uintptr_t,
)
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

import numpy as np

cnp.import_array()

include "loops/arguments.pxi"
include "loops/bits.pxi"
include "loops/crc32c.pxi"
include "loops/places.pxi"
include "loops/bounds.pxi"
include "loops/runs.pxi"
include "loops/dictionaries.pxi"
include "loops/lengths.pxi"
include "loops/fixed.pxi"
include "loops/nulls.pxi"
include "loops/bitpack.pxi"
include "loops/packed_blocks.pxi"
include "loops/deltas.pxi"
include "loops/byte_streams.pxi"
include "loops/blooms.pxi"
include "loops/fsst.pxi"
include "loops/symbols.pxi"
include "loops/picks.pxi"
include "loops/lz4.pxi"
include "loops/names.pxi"
include "loops/maps.pxi"
include "loops/orders.pxi"
include "loops/variant_paths.pxi"
include "loops/variant_json.pxi"
include "wide/trees.pxi"
include "wide/tree_strings.pxi"
include "wide/blocks.pxi"
include "wide/pages.pxi"
include "wide/page_picks.pxi"
include "wide/tree_symbols.pxi"
include "wide/tree_runs.pxi"
include "wide/tree_picks.pxi"
include "wide/columns.pxi"
include "wide/page_values.pxi"
include "wide/wanted.pxi"
include "wide/page_tests.pxi"
include "wide/flat_picks.pxi"
include "wide/flat_nodes.pxi"
include "wide/flat_estimates.pxi"
include "wide/flat_search.pxi"
include "wide/flat_values.pxi"
include "wide/flat_strings.pxi"
include "wide/flat_pages.pxi"
include "wide/flat_blocks.pxi"
