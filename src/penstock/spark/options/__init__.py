"""What a user may set on a read or a write, checked before anything is asked of a broker."""
