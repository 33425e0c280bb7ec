"""The tests in a specification: rows in, rows out."""
