"""Reads mirrors with DuckDB, in an environment of its own; rows go to Parquet files.

``python read_with_duckdb.py JOBS.json``: a list of objects with ``kind``, ``location``, ``out``,
and ``snapshot`` (of Iceberg) or null for the newest. It imports nothing of this project.
"""

import json
import sys
from pathlib import Path

import duckdb
import duckdb_ext

connection = duckdb.connect()
for name in ("avro", "iceberg", "delta"):  # of packages of PyPI: nothing is downloaded here
    (file,) = Path(duckdb_ext.__path__[0]).rglob(f"{name}.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
connection.execute("SET TimeZone = 'UTC'")
for job in json.loads(Path(sys.argv[1]).read_text()):
    options = "" if job["snapshot"] is None else f", snapshot_from_id = {job['snapshot']}"
    scan = f"{job['kind']}_scan('{job['location']}'{options})"
    where = f" WHERE {job['where']}" if job.get("where") else ""
    connection.execute(f"COPY (SELECT * FROM {scan}{where}) TO '{job['out']}' (FORMAT parquet)")
