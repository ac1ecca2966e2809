"""The errors of the Spark integration.

SparkIntegrationError (a fermion.FermionError)
├── JavaNotFound            Spark cannot start: there is no Java
├── UnsupportedBySpark      a type or a setting that Spark does not support; also a TypeError
├── ConversionError         a value that the target type cannot hold; also a ValueError
└── StreamSourceChanged     the table is not the one that the stream has read

Errors of tables and data are in `fermion_table.errors`. A call with wrong arguments raises
`fermion.errors.InvalidArgumentError`.
"""

from __future__ import annotations

from fermion.errors import FermionError


class SparkIntegrationError(FermionError):
    """Root of every error of the Spark integration."""


class JavaNotFound(SparkIntegrationError):
    """Spark needs a Java runtime, and none was found."""


class UnsupportedBySpark(SparkIntegrationError, TypeError):
    """A column's type, or a request, that this version of Spark does not support."""


class StreamSourceChanged(SparkIntegrationError):
    """A stream cannot continue: its offset is of another table, or of another source."""


class ConversionError(SparkIntegrationError, ValueError):
    """A value does not fit the target type; the message names the column."""
