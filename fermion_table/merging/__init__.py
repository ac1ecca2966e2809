"""Primary-key tables: sorted runs and how the rows of a key become one row; pure functions."""
