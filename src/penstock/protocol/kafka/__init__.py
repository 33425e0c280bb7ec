"""Kafka's binary protocol: declarations of its messages and the codec compiled from them."""
