"""Servers that only tests need, each as a context manager: started on a free port, ended by its pid."""
