"""Topics, settings and producer ids: the cluster's metadata as a replicated state machine."""
