"""The way to Redis and back: run operations, listen for wake-ups.

A contract in ``pyproject.toml`` lists the modules that import redis-py.
"""
