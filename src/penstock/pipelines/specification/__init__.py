"""What a pipeline's file says, as plain values: reading it, and finding what is wrong with it."""
