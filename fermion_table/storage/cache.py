"""The cache of decoded metadata objects, by the hash of their stored bytes.

What a hash names never changes, so one cache serves every table of the process and nothing in
it can be stale.
"""

from __future__ import annotations

from fermion.engine import BoundedCache
from fermion_table.options import METADATA_CACHE_BYTES

shared_cache = BoundedCache(METADATA_CACHE_BYTES)
