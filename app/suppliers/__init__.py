"""Suppliers' full price lists: what was sent last is the whole truth (ETL CANON)."""
