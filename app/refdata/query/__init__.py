"""Reads of reference data from memory (sections 6.2 and 7): one loader and some readers make a pod."""
