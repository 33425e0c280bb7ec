"""Whole nodes as the server composes them, but for the Kafka door, on simulated machines."""
