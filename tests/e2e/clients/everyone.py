"""The list of all clients: a test that loops over it covers a client that is added later."""

from tests.e2e.clients import Client
from tests.e2e.clients.aio import AioKafka
from tests.e2e.clients.confluent import Confluent
from tests.e2e.clients.kafka_python import KafkaPython
from tests.e2e.clients.kafkajs import KafkaJs
from tests.e2e.clients.kcat import Kcat

EVERYONE: tuple[Client, ...] = (Confluent(), AioKafka(), KafkaPython(), Kcat(), KafkaJs())
BY_NAME = {client.name: client for client in EVERYONE}
