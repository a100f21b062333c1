"""The catalog of a marketplace (Rakuten): fetched, normalised, kept as raw objects, and applied to `apl`."""
