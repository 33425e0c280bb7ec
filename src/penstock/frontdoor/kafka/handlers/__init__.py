"""One module per API: its versions, its behaviour, its deviations, and its `API`."""
