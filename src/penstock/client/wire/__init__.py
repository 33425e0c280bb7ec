"""A synchronous client for whole record batches: blocking sockets, threads, no librdkafka."""
