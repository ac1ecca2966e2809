"""Web pages that need no other file: a shell, and what each kind of page draws."""
