"""The way to Redis and back: run operations, listen for wake-ups.

Only ``adapter`` and ``connect`` know redis-py.
"""
