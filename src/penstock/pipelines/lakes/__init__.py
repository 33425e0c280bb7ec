"""Tables of Parquet files, written by executors and committed once on the driver."""
