"""The consensus core alone: the fast layer, where messages also get lost, doubled and reordered."""
