"""SQL of single rows, parsed and computed by DuckDB, which is optional."""
