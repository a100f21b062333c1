"""The parsers that are fed with bytes from outside, one module each."""
