"""The reference data platform: dictionaries of many tenants, written as events and read from memory."""
