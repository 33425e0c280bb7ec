"""Queues on topics: who holds which record for how long, how often it was tried, what is done."""
