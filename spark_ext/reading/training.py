"""Labels with the features that were known at each label's time, joined by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fermion_table import Scan, Table
from fermion_table.training import FeatureSource, PlannedSource
from fermion_table.training import training_frame as plan
from spark_ext.reading.table import frame_of
from spark_ext.session import classic

_AGE_MAX = timedelta(days=100_000_000)
"""Near the longest interval of Spark; its times are years 1 to 9999."""


def training_frame(
    spark: SparkSession,
    labels: Table | Scan,
    sources: Sequence[FeatureSource],
    *,
    time: str | None = None,
    as_known_at: datetime | str | None = None,
) -> DataFrame:
    """Join labels with features as they were at each label's time, by Spark's tasks.

    The rows are those of `fermion_table.training.training_frame`, with one exception: of rows with
    one key and time any one counts. Each source costs one shuffle of its rows and of the labels.

    Parameters
    ----------
    spark
        A classic session.
    labels, sources, time, as_known_at
        As of `fermion_table.training.training_frame`; each snapshot is chosen by this call.

    Returns
    -------
    pyspark.sql.DataFrame
        The columns of the labels, then the features of each source, in no order of the rows.

    Raises
    ------
    ColumnNotFoundError, InvalidArgumentError, TypeError, VersionNotFound
        As `fermion_table.training.training_frame`.
    UnsupportedBySpark
        Spark has no type for a column, or the session is a Spark Connect client.
    """
    classic(spark, "training_frame")
    frame = plan(labels, sources, time=time, as_known_at=as_known_at)
    rows = frame_of(spark, frame.labels)
    for source in frame.sources:
        rows = _with_newest(rows, frame.time, source, frame_of(spark, source.scan))
    return rows.select([_column(name) for name in frame.schema.names])


def _with_newest(
    labels: DataFrame, time: str, source: PlannedSource, features: DataFrame
) -> DataFrame:
    """Labels with the newest features of their key.

    Labels and features of a key are sorted by time together, features first. What a label sees is
    the last feature before it.
    """
    keys = [f"key{place}" for place in range(len(source.keys))]

    def rows_of(frame: DataFrame, moment: str, is_label: int) -> DataFrame:
        of_keys = [_column(key).alias(name) for key, name in zip(source.keys, keys, strict=True)]
        values = F.struct(*(_column(name) for name in frame.columns))
        side = "label" if is_label else "feature"
        return frame.select(
            *of_keys,
            _column(moment).alias("at"),
            F.lit(is_label).alias("is_label"),
            values.alias(side),
        )

    known = [F.col(name).isNotNull() for name in [*keys, "at"]]
    is_known = reduce(and_, known)
    stored = rows_of(features, source.time, 0).where(is_known)
    asked = rows_of(labels, time, 1)
    before = Window.partitionBy(*keys).orderBy("at", "is_label")
    before = before.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    newest = F.last("feature", ignorenulls=True).over(before).alias("feature")
    joined = (
        asked.unionByName(stored, allowMissingColumns=True)
        .select(*keys, "at", "is_label", "label", newest)
        .where("is_label = 1")
    )
    fits = is_known
    if source.within is not None:
        age = F.col("at") - F.col("feature").getField(source.time)
        fits = fits & (age <= F.lit(min(source.within, _AGE_MAX)))
    return joined.select(
        *(F.col("label").getField(name).alias(name) for name in labels.columns),
        *(F.when(fits, F.col("feature").getField(name)).alias(name) for name in source.features),
    )


def _column(name: str) -> Column:
    """A column of the frame, whatever characters its name has."""
    return F.col("`" + name.replace("`", "``") + "`")
