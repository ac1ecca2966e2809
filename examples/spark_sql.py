"""A warehouse in Spark SQL: tables are made, filled, changed, and read as they were before.

python examples/spark_sql.py [directory]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import spark_ext

STATEMENTS = """
CREATE TABLE lake.shop.orders (id BIGINT, customer STRING, day DATE) PARTITIONED BY (months(day));
INSERT INTO lake.shop.orders
    SELECT id, concat('c', id % 10), date_add(DATE'2024-01-01', int(id % 90)) FROM range(1000);
ALTER TABLE lake.shop.orders ADD COLUMN amount DECIMAL(8, 2);
INSERT INTO lake.shop.orders VALUES (1000, 'c0', DATE'2024-02-29', 12.50);
DELETE FROM lake.shop.orders WHERE customer = 'c3';
CREATE TABLE lake.shop.february AS
    SELECT * FROM lake.shop.orders WHERE day BETWEEN '2024-02-01' AND '2024-02-29'
"""
CHECKS = {
    "SELECT count(*) FROM lake.shop.orders": 901,
    "SELECT count(*) FROM lake.shop.orders VERSION AS OF 1": 1000,
    "SELECT sum(amount) FROM lake.shop.february": 12.5,
    "SELECT max(id) FROM lake.shop.orders WHERE day < DATE'2024-01-11'": 999,
}


def main() -> int:
    """Run the statements, check some answers; return the exit status."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = spark_ext.configure(builder).getOrCreate()
    right = True
    try:
        spark_ext.install_catalog(spark, "lake", directory / "warehouse")
        for statement in STATEMENTS.split(";\n"):
            spark.sql(statement)
        for query, expected in CHECKS.items():
            found = spark.sql(query).collect()[0][0]
            right &= found == expected
            print(f"{query}: {found}")
        plan = spark.sql(f"EXPLAIN {list(CHECKS)[-1]}").collect()[0][0]
        print(next(line for line in plan.splitlines() if "BatchScan" in line))
    finally:
        spark.stop()
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
