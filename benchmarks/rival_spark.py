"""The environment of table formats that need an older Spark: PySpark 3.5 and their jars.

``python -m benchmarks.rival_spark [SYSTEM ...]`` makes it, or adds what is missing; it needs
nothing but Python. Jars come from Maven Central. A jar that can't be had is named, and its system
is left out of the measurements.
"""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path

ENVIRONMENT = ".venv-spark35"
FOLDER = Path(__file__).resolve().parent.parent / ENVIRONMENT
JARS = FOLDER / "jars"
PACKAGES = ("pyspark>=3.5,<3.6", "JPype1>=1.5", "numpy", "pyarrow")
MAVEN = "https://repo1.maven.org/maven2"
SYSTEMS: dict[str, tuple[str, ...]] = {
    "paimon": ("org/apache/paimon/paimon-spark-3.5/0.9.0",),  # the newest for Spark 3.5
    "paimon-java": ("org/apache/paimon/paimon-bundle/1.4.2",),  # its engine without Spark
    "iceberg": ("org/apache/iceberg/iceberg-spark-runtime-3.5_2.12/1.12.0",),
    "delta": ("io/delta/delta-spark_2.12/3.3.3", "io/delta/delta-storage/3.3.3"),
    "hudi": ("org/apache/hudi/hudi-spark3.5-bundle_2.12/1.2.0",),
}


def jars_of(system: str) -> list[Path]:
    """The files of a system's jars, whether they are there or not."""
    return [JARS / jar_name(jar) for jar in SYSTEMS[system]]


def jar_name(jar: str) -> str:
    """The name of a jar's file: artifact and version."""
    _, artifact, version = jar.rsplit("/", 2)
    return f"{artifact}-{version}.jar"


def set_up(systems: Iterable[str] = tuple(SYSTEMS)) -> dict[str, str]:
    """Make the environment; return, of systems that could not be had, the reason."""
    python = FOLDER / "bin" / "python"
    if not (FOLDER / "ready").exists():
        print(f"Setting up {ENVIRONMENT}; the first time takes a few minutes", flush=True)
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
        pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES], check=True)
        (FOLDER / "ready").touch()
    JARS.mkdir(exist_ok=True)
    missing = {}
    for system in systems:
        for jar, file in zip(SYSTEMS[system], jars_of(system), strict=True):
            if file.exists():
                continue
            draft = file.with_suffix(".part")
            try:
                urllib.request.urlretrieve(f"{MAVEN}/{jar}/{file.name}", draft)
            except (urllib.error.URLError, TimeoutError) as error:
                missing[system] = f"{file.name}: {error}"
                break
            draft.replace(file)
    return missing


if __name__ == "__main__":
    found = set_up(sys.argv[1:] or tuple(SYSTEMS))
    sys.exit("\n".join(f"{system}: {reason}" for system, reason in found.items()) or None)
