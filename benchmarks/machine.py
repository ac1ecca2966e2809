"""What a result was measured on: processor, memory, system, versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

PACKAGES = (
    "fermion",
    "numpy",
    "pyarrow",
    "vortex-data",
    "pylance",
    "polars",
    "deltalake",
    "pyiceberg",
    "tpchgen-cli",
)


def today() -> str:
    """The date in UTC, as in 2026-01-31."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def description() -> dict[str, object]:
    """The machine and the versions; names nobody and no place."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "load_average": round(os.getloadavg()[0], 1),  # what ran beside, the benchmark included
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
