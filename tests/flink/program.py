"""Runs in Flink's environment: SQL from lines of JSON on standard input, rows to standard output.

Each request is ``{"statements": [...], "batch": ..., "settings": {...}, "rows_max": ...,
"savepoints": ...}``, where a folder says that INSERTs run until they are stopped. The
answer is the rows of the last statement, each with its kind (``+I``, ``-U``, ``+U``, ``-D``), or
the error with its causes. An answer is one line, after a mark, as Flink prints, too.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment

from tests.flink.values import encoded

ANSWER = "fermion-answer "
# Of one small machine: slots for a few jobs, little memory that nothing uses.
SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "4",
    "taskmanager.memory.network.max": "64mb",
    "taskmanager.memory.managed.size": "64mb",
    "rest.bind-port": "0-65535",
}


def environment(*, batch: bool, settings: dict[str, str]) -> TableEnvironment:
    """A table environment in local mode: each job starts a MiniCluster in this JVM."""
    configuration = Configuration()
    for name, value in {**SETTINGS, **settings}.items():
        configuration.set_string(name, value)
    builder = EnvironmentSettings.new_instance().with_configuration(configuration)
    mode = builder.in_batch_mode() if batch else builder.in_streaming_mode()
    return TableEnvironment.create(mode.build())


def answered(request: dict[str, Any]) -> dict[str, Any]:
    """The rows of the last statement, and of EXPLAIN its text."""
    tables = environment(batch=request["batch"], settings=request["settings"])
    rows_max = request["rows_max"]
    rows: list[Any] = []
    for sql in request["statements"]:
        result = tables.execute_sql(sql)
        rows = []
        writes = sql.lstrip().upper().startswith(("INSERT", "CREATE"))  # ... TABLE ... AS, too
        if result.get_job_client() is not None and writes:
            if request["savepoints"]:
                return {"rows": encoded([["+I", [stopped(result, Path(request["savepoints"]))]]])}
            result.wait()
            continue
        with result.collect() as found:  # its end cancels the job
            for row in found:
                rows.append([str(row.get_row_kind()), list(row)])
                if rows_max is not None and len(rows) >= rows_max:
                    break
    return {"rows": encoded(rows)}


def stopped(result: Any, folder: Path) -> str:
    """Wait until the folder has a file ``stop``; then stop the job with a savepoint there."""
    # PyFlink's own method calls one that Flink 2 no longer has.
    job = result.get_job_client()._j_job_client
    canonical = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL
    while not (folder / "stop").exists():
        time.sleep(0.1)
    return str(job.stopWithSavepoint(False, f"file://{folder}", canonical).get())


def message(error: BaseException) -> str:
    """What an error says, with its causes in Java."""
    found = getattr(error, "java_exception", None)
    texts = [str(error)]
    while found is not None:
        texts.append(str(found.toString()))
        found = found.getCause()
    return "\n".join(texts)


def main() -> None:
    """Answer requests until the input ends, and print to standard error what is not an answer."""
    get_gateway()
    for line in sys.stdin:
        try:
            answer = answered(json.loads(line))
        except Exception as error:  # noqa: BLE001 - the test raises it
            answer = {"error": message(error)}
        print(ANSWER + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
