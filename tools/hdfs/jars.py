"""The jars of Hadoop's servers: PySpark's own, and one from Maven Central, kept in ``build``."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path

from tools.servers import NotAvailableError

BUILD = Path(__file__).resolve().parents[2] / "build" / "hdfs"
VERSION = "3.5.0"
"""That of the client jars that PySpark brings."""
MAVEN = "https://repo1.maven.org/maven2"
NAME = f"hadoop-client-minicluster-{VERSION}.jar"
URL = f"{MAVEN}/org/apache/hadoop/hadoop-client-minicluster/{VERSION}/{NAME}"
SHA256 = "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
FROM_PYSPARK = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "snappy-java")
LOGGING = ("log4j-slf4j2-impl", "log4j-api", "log4j-core", "jcl-over-slf4j", "log4j-1.2-api")
SECONDS_MAX = 60
"""Without an answer of Maven Central."""


def class_path() -> list[Path]:
    """The jars that the servers run on; the first call downloads what PySpark does not bring.

    Raises
    ------
    NotAvailableError
        PySpark, or Maven Central, is not there.
    """
    return [_minicluster(), *_of_pyspark()]


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


def _minicluster() -> Path:
    jar = BUILD / NAME
    if jar.exists() and _sha256(jar) == SHA256:
        return jar
    BUILD.mkdir(parents=True, exist_ok=True)
    draft = BUILD / f"{NAME}.{os.getpid()}.part"
    try:
        with draft.open("wb") as to, urllib.request.urlopen(URL, timeout=SECONDS_MAX) as reply:
            shutil.copyfileobj(reply, to)
        digest = _sha256(draft)
        if digest != SHA256:
            raise NotAvailableError(f"{URL}: expected SHA-256 {SHA256}, found {digest}")
        draft.replace(jar)
    except (urllib.error.URLError, OSError) as error:
        raise NotAvailableError(f"Maven Central is not reachable: {URL}: {error}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
    return jar


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
