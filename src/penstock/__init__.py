"""Penstock: one replicated log with three contracts behind three front doors."""

__version__ = "0.1.0"
