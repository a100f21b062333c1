"""The document of the HTTP API: written in YAML, one file a subsystem, and served as one."""
