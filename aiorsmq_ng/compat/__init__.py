"""Faces of other libraries over this one, for programs that were written for those."""
