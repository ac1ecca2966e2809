"""How results of maintenance are printed."""

from __future__ import annotations

import argparse
import dataclasses

from fermion_table.cli.printing import Console
from fermion_table.expiry.maintenance import MaintenanceResult


def print_maintenance(
    result: MaintenanceResult, arguments: argparse.Namespace, console: Console
) -> None:
    """Print what went, or would go."""
    if arguments.json:
        console.print_json(dataclasses.asdict(result))
        return
    console.print(str(result))
    if result.dry_run:
        for path in result.paths:
            console.print(f"  {path}")
