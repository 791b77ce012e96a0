"""Conformance kit for clients of RSMQ: scenarios as data, any client as a process."""

__version__ = "1.0.0"
