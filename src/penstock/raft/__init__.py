"""The consensus core: pure and sans-IO. Events go in, effects come out as a `Ready`."""
