"""The command line: one file per command, thin, over `penstock.server` and `penstock.client`."""
