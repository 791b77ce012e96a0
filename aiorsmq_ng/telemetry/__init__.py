"""Telemetry: metrics and traces of clients and workers, off unless a client is given an outlet."""

from __future__ import annotations

from .hooks import (
    After,
    ClientCall,
    Handled,
    HandledOutcome,
    ObservedClient,
    ObservedWorker,
    OperationType,
    Process,
    Receive,
    Telemetry,
)

__all__ = [
    "After",
    "ClientCall",
    "Handled",
    "HandledOutcome",
    "ObservedClient",
    "ObservedWorker",
    "OperationType",
    "Process",
    "Receive",
    "Telemetry",
]
