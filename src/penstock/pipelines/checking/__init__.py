"""Finding what Spark would refuse, before anything runs."""
