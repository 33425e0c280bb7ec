"""What a running node tells its operator: log lines, and metrics."""
