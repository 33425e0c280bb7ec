"""Archives, without Spark and without a broker."""
