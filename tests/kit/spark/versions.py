"""Which tests a version of Spark can run."""

from __future__ import annotations

import pytest

from spark_ext.versions import SERIES, SPARK, Feature

LATER = frozenset(
    f"spark_{major}_{minor}" for major, minor in SERIES if (major, minor) > SPARK.series
)
"""With these blocks of a page are marked that need a newer Spark, as in ``python spark_4_3``."""


def needs(feature: Feature) -> pytest.MarkDecorator:
    """The mark of a test of what some versions of Spark lack."""
    reason = f"Spark {SPARK.text} lacks {feature.what}"
    return pytest.mark.skipif(not SPARK.has(feature), reason=reason)
