"""The errors of the Flink integration.

FlinkIntegrationError (a fermion.FermionError)
├── UnsupportedByFlink      a type that Flink, or a table, does not have; also a TypeError
├── BadRequest              what the other side sent is no request; also a ValueError
└── JarNotFound             the jar of the connector is not there; also a FileNotFoundError

Errors of tables and data are in `fermion_table.errors`. Wrong arguments are a
`fermion.errors.InvalidArgumentError`.
"""

from __future__ import annotations

from fermion.errors import FermionError


class FlinkIntegrationError(FermionError):
    """Root of every error of the Flink integration."""


class UnsupportedByFlink(FlinkIntegrationError, TypeError):
    """A type that has no counterpart on the other side; the message names the column."""


class BadRequest(FlinkIntegrationError, ValueError):
    """The other side sent something that is no request: another version of the connector?"""


class JarNotFound(FlinkIntegrationError, FileNotFoundError):
    """There is no jar of the connector beside this package."""
