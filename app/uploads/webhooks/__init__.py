"""Signed webhooks: who asked for it is told that an upload has ended (D6.6 §7.4)."""
