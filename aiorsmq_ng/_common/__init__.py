"""Helpers without I/O of their own that every layer may import."""
