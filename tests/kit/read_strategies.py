"""Switches off ways to read columns, so that the general one is compared with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fermion.reading import stream
from fermion.reading.encoded_filter import EncodedFilter
from fermion.reading.stripe import FAST_STRATEGIES


@contextmanager
def without(*strategies: type) -> Iterator[None]:
    """Without some strategies: the others read their columns."""
    with pytest.MonkeyPatch.context() as patch:
        for strategy in strategies:
            patch.setattr(strategy, "applies", lambda *_: False)
        yield


@contextmanager
def only_general() -> Iterator[None]:
    """Without the kernels over pages: `column.GeneralRead` decodes all columns, page by page."""
    with without(*FAST_STRATEGIES), pytest.MonkeyPatch.context() as patch:
        patch.setattr(EncodedFilter, "find", lambda *_: None)
        patch.setattr(stream, "_picked", lambda *_: None)
        yield
