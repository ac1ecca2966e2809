"""The errors of the Spark integration.

SparkIntegrationError (a fermion.FermionError)
├── JavaNotFound            Spark cannot start: there is no Java
├── UnsupportedBySpark      a type or a setting that Spark has no place for; also a TypeError
├── ConversionError         a value that the other side's type cannot hold; also a ValueError
└── StreamSourceChanged     the table under a stream is not the one that the stream has read

What is wrong with a table or with data is said in `fermion_table.errors`; a call that could
never succeed raises `fermion.errors.InvalidArgumentError`.
"""

from __future__ import annotations

from fermion.errors import FermionError


class SparkIntegrationError(FermionError):
    """Root of every error of the Spark integration."""


class JavaNotFound(SparkIntegrationError):
    """Spark needs a Java runtime, and none was found."""


class UnsupportedBySpark(SparkIntegrationError, TypeError):
    """A column's type, or a request, that this version of Spark has no place for."""


class StreamSourceChanged(SparkIntegrationError):
    """A stream cannot go on: its offset is of another table, or of another source."""


class ConversionError(SparkIntegrationError, ValueError):
    """A value does not fit the type on the other side; the message names the column."""
