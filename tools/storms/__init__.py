"""Storms: faults in the middle of work, with every message accounted for afterwards."""
