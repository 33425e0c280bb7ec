"""Replicas of one partition with real logs, exchange and heartbeats, on simulated machines."""
