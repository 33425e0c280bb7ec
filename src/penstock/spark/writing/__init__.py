"""Writing a DataFrame to topics: from Arrow batches to acknowledged record batches."""
