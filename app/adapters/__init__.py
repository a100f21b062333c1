"""The outside world, one module for each part of it."""
