"""The Kafka door: connections, the table of APIs, and one handler per API."""
