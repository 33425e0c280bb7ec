"""From a specification to DataFrames: sources, decoding, steps and rules."""
