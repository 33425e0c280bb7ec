"""A topic kept as a table of files, proven complete, and brought back."""
