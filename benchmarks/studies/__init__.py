"""Measurements that no peer takes part in: each has a server of its own and a table of its own."""
