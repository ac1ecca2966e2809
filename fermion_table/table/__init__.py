"""`Table`, and tables that are staged."""
