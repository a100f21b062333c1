"""Advertising reports (D6.6): intake, parse, promotion, completion event, cleanup."""
