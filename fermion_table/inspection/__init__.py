"""What a table holds, as tables: history, files, differences, references."""
