"""Flows at work: checkpoints, progress, and stopping after a batch."""
