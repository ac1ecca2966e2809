# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Hot loops over values, compiled: no policy, no input or output, the GIL released.

Every function checks all lengths and ranges once, before its loop; `reference` holds the same
functions in NumPy. Inputs may be read-only, of any alignment and empty. The parts are included
below, one file an idea.
"""

cimport cython
cimport numpy as cnp
from libc.stdint cimport (
    INT64_MAX,
    INT64_MIN,
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

include "arguments.pxi"
include "bits.pxi"
include "crc32c.pxi"
include "places.pxi"
include "bounds.pxi"
include "runs.pxi"
include "dictionaries.pxi"
include "lengths.pxi"
include "fixed.pxi"
include "nulls.pxi"
include "bitpack.pxi"
include "deltas.pxi"
include "byte_streams.pxi"
include "blooms.pxi"
include "fsst.pxi"
include "picks.pxi"
include "lz4.pxi"
include "trees.pxi"
include "tree_strings.pxi"
include "blocks.pxi"
include "columns.pxi"
include "page_picks.pxi"
include "flat_nodes.pxi"
include "flat_estimates.pxi"
include "flat_values.pxi"
include "flat_pages.pxi"
