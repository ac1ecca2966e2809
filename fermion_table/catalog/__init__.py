"""A warehouse of tables under names: the list of tables, snapshots of many tables, repair."""
