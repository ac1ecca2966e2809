"""Which tests a version of Spark can run."""

from __future__ import annotations

import pytest

from spark_ext.versions import SERIES, SPARK, Feature, series_text

LATER = frozenset(series_text(series) for series in SERIES if series > SPARK.series)
"""With these blocks of a page are marked that need a newer Spark, as in ``python 4.3``."""


def needs(feature: Feature) -> pytest.MarkDecorator:
    """The mark of a test of what some versions of Spark lack."""
    reason = f"Spark {SPARK.text} lacks {feature.what}"
    return pytest.mark.skipif(not SPARK.has(feature), reason=reason)
