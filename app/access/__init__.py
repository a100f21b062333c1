"""Who may do what: keys, sessions, limits, and the one question every view asks (`principal`)."""
