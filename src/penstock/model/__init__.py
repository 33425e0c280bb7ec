"""The words every other package speaks: ids, errors, limits, the clock, file ranges."""
