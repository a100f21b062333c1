"""What the catalog's tables are told: one repository for each (seed §4.4, §4.5). None ends a transaction."""
