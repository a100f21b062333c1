"""Headworks: other people's files and events in, tables that can be trusted out."""
