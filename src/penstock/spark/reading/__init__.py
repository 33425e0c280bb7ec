"""Reading a topic as a DataFrame: what to read is planned once, executors fetch and decode it."""
