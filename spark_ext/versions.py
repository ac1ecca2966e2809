"""What differs between the versions of Spark that work: only this module asks for the version.

`FEATURES` has what some of them lack, `SPARK` says what this one has. The names of PySpark that
came later have stand-ins here, so that the other modules need not know which there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import datasource as sources
from pyspark.sql import types as st
from pyspark.sql.pandas import types as arrow_types

from fermion.exports import dataclass
from spark_ext.errors import UnsupportedBySpark

Number = tuple[int, int]
SERIES: tuple[Number, ...] = ((4, 0), (4, 1), (4, 2), (4, 3))
"""The versions in which everything was tried; `SparkVersion.has` takes a newer one as the last."""


@dataclass(frozen=True, slots=True)
class Feature:
    """What a version of Spark may lack: the first one that has it, and what to do in another."""

    what: str
    since: Number
    instead: str


TIME_TYPE = Feature(
    "type TIME", (4, 1), "leave the column out with columns=, or store it as INT or STRING"
)
ARROW_FUNCTIONS = Feature(
    "functions over Arrow data, which compute the buckets of rows",
    (4, 1),
    "all columns are passed to Python for it",
)
BARE_ROWS = Feature("rows that are read without columns", (4, 1), "select a column")
"""Without it Spark would lose the rows: it packs the columns of a batch into one, of no length."""
SCHEMA_EVOLUTION = Feature(
    "WITH SCHEMA EVOLUTION in statements", (4, 1), "add the columns with ALTER TABLE before"
)
LISTED_PROCEDURES = Feature(
    "SHOW PROCEDURES and DESCRIBE PROCEDURE", (4, 1), "docs/spark.md lists the procedures"
)
PARTIAL_INSERT = Feature("INSERT into some of the columns", (4, 1), "name a value for each column")
READ_LIMITS = Feature(
    "`maxFilesPerTrigger` of a stream",
    (4, 2),
    "leave it out: a micro-batch reads all that is new",
)
TABLES_LIKE = Feature("CREATE TABLE ... LIKE", (4, 2), "name the columns")
OPTIONS_OF_TABLES = Feature(
    "options with which a statement chooses a version, a branch or changes of a table",
    (4, 3),
    'use VERSION AS OF, the functions of spark_ext or format("fermion")',
)
OPTIONS_OF_CHANGES = Feature(
    "WITH (options) in UPDATE, DELETE and MERGE",
    (4, 3),
    "use spark_ext.merge with commit_user and commit_identifier",
)
VARIANT_PARTS = Feature(
    "parts of VARIANT columns that tasks filter by or read alone",
    (4, 3),
    "use the filter and the columns of read_table or an option",
)
FEATURES = (
    TIME_TYPE,
    ARROW_FUNCTIONS,
    BARE_ROWS,
    SCHEMA_EVOLUTION,
    LISTED_PROCEDURES,
    PARTIAL_INSERT,
    READ_LIMITS,
    TABLES_LIKE,
    OPTIONS_OF_TABLES,
    OPTIONS_OF_CHANGES,
    VARIANT_PARTS,
)


@dataclass(frozen=True, slots=True)
class SparkVersion:
    """A version of Spark: its text, as 4.1.4, and its series, as (4, 1)."""

    text: str

    @property
    def series(self) -> Number:
        """Its first two numbers."""
        major, minor, *_ = self.text.split(".")
        return int(major), int(minor)

    @property
    def is_known(self) -> bool:
        """Whether the interfaces of planning were tried with it."""
        return self.series in SERIES

    def has(self, feature: Feature) -> bool:
        """Whether it has a feature."""
        return self.series >= feature.since

    def require(self, feature: Feature, where: str) -> None:
        """Check that it has a feature.

        Raises UnsupportedBySpark: It has not; the message has both versions, and what to do
            instead.
        """
        if not self.has(feature):
            raise UnsupportedBySpark(
                f"{where}: {feature.what}: Spark {series_text(feature.since)} or newer has it, "
                f"this is Spark {self.text}; {feature.instead}"
            )


def series_text(series: Number) -> str:
    """A series as users write it: 4.1."""
    return ".".join(map(str, series))


SPARK = SparkVersion(pyspark.__version__)

REPLACES_FORMATS = SPARK.series >= (4, 1)
"""Whether a format of a session replaces one that Spark finds by itself; Spark 4.0 refuses both."""


class LackingType(st.DataType):
    """Stands for a type that this Spark lacks: no column has it."""


TimeType: Any = getattr(st, "TimeType", LackingType)
GeometryType: Any = getattr(st, "GeometryType", LackingType)
GeographyType: Any = getattr(st, "GeographyType", LackingType)

_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if SPARK.series >= (4, 2) else {}


def to_arrow_type(dtype: st.DataType) -> pa.DataType:
    """Spark's Arrow type of its own type; timestamps are in UTC."""
    return arrow_types.to_arrow_type(dtype, **_IN_UTC)


def to_arrow_schema(schema: st.StructType) -> pa.Schema:
    """The same for all columns."""
    return arrow_types.to_arrow_schema(schema, **_IN_UTC)


if TYPE_CHECKING or SPARK.has(READ_LIMITS):
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit as ReadLimit
    from pyspark.sql.streaming.datasource import ReadMaxFiles as ReadMaxFiles
    from pyspark.sql.streaming.datasource import (
        SupportsTriggerAvailableNow as SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """How much a micro-batch reads."""

    class ReadAllAvailable(ReadLimit):
        """All that is new."""

    @dataclass
    class ReadMaxFiles(ReadLimit):
        """At most so many files."""

        max_files: int

    class SupportsTriggerAvailableNow:
        """Without it Spark itself ends such a query at the offset that is the newest first."""


if TYPE_CHECKING or hasattr(sources, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import (
        DataSourceStreamArrowWriter as DataSourceStreamArrowWriter,
    )
else:

    class DataSourceStreamArrowWriter(
        sources.DataSourceStreamWriter, sources.DataSourceArrowWriter
    ):
        """A stream's writer: only to those that are called writers of Arrow data 4.0 gives some."""


COLUMN_ARGUMENTS: tuple[Any, ...] = (False,) if SPARK.series >= (4, 2) else ()
"""What ``CatalogV2Util.structTypeToV2Columns`` gets besides a schema."""
SOURCE_HOLDS_PLAN = SPARK.series >= (4, 1)
"""Whether Spark's source of Python's takes a plan and filters; else its batch is given the plan."""
