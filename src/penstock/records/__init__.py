"""Record batches as bytes: the unit on the wire, in the log file and in replication."""
