"""Reading one list: bytes in, rows out, with every rule that its config sets. No database, no web."""
