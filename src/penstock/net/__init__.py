"""Sockets, with nothing of Kafka in it: listener, receive buffer, memory budget, send queue."""
