"""Seeded simulators: one seed is one run, and always the same run."""
