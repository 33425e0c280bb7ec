"""The doors: each translates one outside language into use cases, and decides nothing."""
