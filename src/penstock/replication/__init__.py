"""One partition's copy, the producers it knows, and the state machines that run on it."""
