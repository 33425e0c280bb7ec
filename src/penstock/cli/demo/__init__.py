"""The demonstration: sensors send temperatures, a group of two controllers reads them."""
