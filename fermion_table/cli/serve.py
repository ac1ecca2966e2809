"""`fermion serve`: SQL over the tables of a warehouse, for clients of Arrow Flight SQL."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from fermion.cli import Console, add_storage_options, counted, storage_options
from fermion.display import location_text
from fermion.errors import InvalidArgumentError
from fermion_table.catalog.catalog import Catalog
from fermion_table.cli.arguments import add_flag, stopped_by

if TYPE_CHECKING:
    from fermion_table.serving.queries import Limits

HELP = "answer SQL over the tables of a warehouse, for ADBC, JDBC and others (needs DuckDB)"
PORT = 31337
"""Of most servers of Flight SQL."""
_STOPPED_S = 5.0
"""Seconds for clients that take no more rows, after their queries were ended."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("warehouse", metavar="WAREHOUSE", help="directory or URL")
    add = parser.add_argument
    add(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="to listen at (default: %(default)s)"
    )
    add("--port", type=int, default=PORT, metavar="N", help="default: %(default)s; 0: a free one")
    add(
        "--token-file",
        metavar="PATH",
        help="with the token that clients must send; it is made, with a random token, if there is "
        "none (default: a random token is printed)",
    )
    add_flag(parser, "--no-token", "anyone on this machine may ask; only at loopback")
    add("--tls-cert", metavar="PATH", help="PEM: the server's certificate and those above it")
    add("--tls-key", metavar="PATH", help="PEM: the key of the certificate")
    add_flag(parser, "--no-tls", "listen for others than this machine without TLS")
    add("--max-seconds", type=float, default=600.0, metavar="N", help="a query (default: 600)")
    add("--max-memory", default="1GB", metavar="SIZE", help="a query of DuckDB (default: 1GB)")
    add("--max-rows", type=int, metavar="N", help="of an answer (default: no limit)")
    add("--max-queries", type=int, default=16, metavar="N", help="at the same time (default: 16)")
    add(
        "--grace",
        type=float,
        default=30.0,
        metavar="N",
        help="seconds that running queries have after SIGTERM (default: 30)",
    )
    add_storage_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit status is 0."""
    from fermion_table.serving.server import SqlServer  # pyarrow.flight is slow to import

    catalog = Catalog.open(arguments.warehouse, storage_options=storage_options(arguments))
    count = len(catalog.tables())
    certificate, limits = _certificate(arguments), _limits(arguments)
    token, note = _token(arguments)
    scheme = "grpc" if certificate is None else "grpc+tls"
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with stopped_by(signal.SIGTERM, signal.SIGINT) as stop:
        server = SqlServer(
            catalog,
            f"{scheme}://{host}:{arguments.port}",
            token=token,
            certificate=certificate,
            limits=limits,
        )
        console.print(f"{counted(count, 'table')} of {location_text(catalog.location)}")
        console.print(f"listening at {scheme}://{host}:{server.port}")
        console.print(note)
        sys.stdout.flush()
        stop.wait()
    console.print("stopping")
    sys.stdout.flush()
    ending = threading.Thread(target=server.stop, args=(arguments.grace,), daemon=True)
    ending.start()
    ending.join(arguments.grace + _STOPPED_S)
    if ending.is_alive():  # a client that neither reads on nor leaves keeps its call open
        os._exit(0)
    return 0


def _token(arguments: argparse.Namespace) -> tuple[str | None, str]:
    """The token that clients must send, and what to print about it."""
    from fermion_table.serving.access import is_loopback, new_token, token_in

    if arguments.no_token:
        if arguments.token_file is not None or not is_loopback(arguments.host):
            raise InvalidArgumentError(
                "--no-token: is for a loopback address, such as --host 127.0.0.1, and goes without "
                "--token-file"
            )
        return None, "no token: every program on this machine may ask"
    if arguments.token_file is None:
        token = new_token()
        return token, f"token: {token}"
    token, is_new = token_in(arguments.token_file)
    return token, f"token: in {arguments.token_file}" + (", made now" if is_new else "")


def _certificate(arguments: argparse.Namespace) -> tuple[bytes, bytes] | None:
    """The certificate chain and the key, in PEM; None: no TLS."""
    from fermion_table.serving.access import is_loopback

    paths = arguments.tls_cert, arguments.tls_key
    if paths == (None, None):
        if not is_loopback(arguments.host) and not arguments.no_tls:
            raise InvalidArgumentError(
                f"--host {arguments.host}: others could read along: expected --tls-cert and "
                "--tls-key, or --no-tls where something else encrypts"
            )
        return None
    if None in paths or arguments.no_tls:
        raise InvalidArgumentError("expected --tls-cert and --tls-key together, without --no-tls")
    chain, key = (Path(path).read_bytes() for path in paths)
    for path, data, label in ((paths[0], chain, b"CERTIFICATE"), (paths[1], key, b"PRIVATE KEY")):
        if b"-----BEGIN " not in data or label + b"-----" not in data:
            raise InvalidArgumentError(f"{path}: expected PEM with a {label.decode()}")
    return chain, key


def _limits(arguments: argparse.Namespace) -> Limits:
    from fermion_table.serving.queries import Limits

    for name, least in (("max_seconds", 0.001), ("max_queries", 1), ("max_rows", 1), ("grace", 0)):
        value = getattr(arguments, name)
        if value is not None and not least <= value < float("inf"):
            flag = f"--{name.replace('_', '-')}"
            raise InvalidArgumentError(f"{flag} {value}: expected {least} or more")
    if not 0 <= arguments.port < 1 << 16:
        raise InvalidArgumentError(f"--port {arguments.port}: expected 0 to 65535")
    limits = Limits(
        seconds=arguments.max_seconds,
        memory=arguments.max_memory,
        rows=arguments.max_rows,
        queries=arguments.max_queries,
    )
    limits.check()
    return limits
