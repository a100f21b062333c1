"""Schema, migrations and queries: all SQL of the product."""
