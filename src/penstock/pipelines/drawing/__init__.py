"""A pipeline's graph, as text and as a picture."""
