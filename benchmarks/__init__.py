"""Named workloads against a fresh broker, with the figures that Penstock promises."""
