"""Operations on rows: transactions, deletes, updates, merges, and columns with values."""
