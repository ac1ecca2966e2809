"""The jars of Hadoop's servers: PySpark's own, and one from Maven Central, kept in ``build``."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tools.maven import file_of_maven
from tools.servers import NotAvailableError

BUILD = Path(__file__).resolve().parents[2] / "build" / "hdfs"
VERSION = "3.5.0"
"""That of the client jars that PySpark brings."""
NAME = f"hadoop-client-minicluster-{VERSION}.jar"
PATH = f"org/apache/hadoop/hadoop-client-minicluster/{VERSION}/{NAME}"
SHA256 = "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
FROM_PYSPARK = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "snappy-java")
LOGGING = ("log4j-slf4j2-impl", "log4j-api", "log4j-core", "jcl-over-slf4j", "log4j-1.2-api")


def class_path() -> list[Path]:
    """The jars that the servers run on; the first call downloads what PySpark does not bring.

    Raises
    ------
    NotAvailableError
        PySpark, or Maven Central, is not there.
    """
    return [file_of_maven(PATH, SHA256, BUILD), *_of_pyspark()]


def _of_pyspark() -> list[Path]:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise NotAvailableError("HDFS needs the jars of PySpark, which the extra spark installs")
    folder = Path(found.origin).parent / "jars"
    jars = [
        jar
        for name in (*FROM_PYSPARK, *LOGGING)
        for jar in sorted(folder.glob(f"{name}-[0-9]*.jar"))
    ]
    if folder / f"hadoop-client-runtime-{VERSION}.jar" not in jars:
        brought = [jar.name for jar in jars if jar.name.startswith("hadoop")]
        raise NotAvailableError(
            f"HDFS {VERSION} needs the client jars of the same version, and PySpark brings "
            f"{', '.join(brought) or 'none'}"
        )
    return jars
