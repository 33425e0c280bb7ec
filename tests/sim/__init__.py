"""A seeded simulator of the consensus core: one seed is one run, and always the same run."""
