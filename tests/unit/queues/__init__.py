"""Queues: which record is with whom, how often it was tried, and what is done."""
