"""What a running node tells its operator."""
