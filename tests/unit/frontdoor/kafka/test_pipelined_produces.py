"""Proves that produces which come together share a sync and are counted, each of them."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Settings
from penstock.frontdoor.kafka.door import KafkaDoor
from penstock.model.endpoint import Endpoint
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import decode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.headers import decode_response_header
from penstock.protocol.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.kafka.messages.produce import ProduceResponse
from penstock.records.batch import build_batch
from penstock.records.record import Record
from penstock.server import Node
from penstock.storage.file_system import RealFile
from tests.e2e.wire import PRODUCE_VERSION, frame, produce_frame

PATIENCE_S = 60.0
PIPELINED = 5


@contextmanager
def counted_syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The segments of topics that were synced."""
    synced: list[str] = []
    sync = RealFile.sync

    def counted(self: RealFile) -> None:
        path = os.readlink(f"/proc/self/fd/{self.fileno()}")
        if path.endswith(".log") and "/topics/" in path:
            synced.append(path)
        sync(self)

    with monkeypatch.context() as patch:
        patch.setattr(RealFile, "sync", counted)
        yield synced


async def answer(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4))
    return await reader.readexactly(size)


def offset_in(reply: bytes) -> int:
    _, position = decode_response_header(ApiKey.PRODUCE, PRODUCE_VERSION, memoryview(reply))
    response: Any = decode(ProduceResponse, PRODUCE_VERSION, reply, position)
    partition = response.responses[0].partition_responses[0]
    assert partition.error_code == ErrorCode.NONE
    offset: int = partition.base_offset
    return offset


def test_five_pipelined_produces_share_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Endpoint] = []
    bind = KafkaDoor.bind

    async def bind_and_note(self: KafkaDoor, host: str, port: int) -> Endpoint:
        opened.append(await bind(self, host, port))
        return opened[-1]

    monkeypatch.setattr(KafkaDoor, "bind", bind_and_note)

    async def scenario() -> None:
        node = Node(
            Settings(
                data_dir=tmp_path / "data", kafka=Endpoint("127.0.0.1", 0), grpc=None, http=None
            )
        )
        await node.start()
        reader, writer = await asyncio.open_connection(opened[0].host, opened[0].port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        create = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        writer.write(frame(ApiKey.CREATE_TOPICS, 5, create))
        await answer(reader)
        writer.write(produce_frame("t", b"first"))
        assert offset_in(await answer(reader)) == 0
        with counted_syncs(monkeypatch) as synced:
            writer.write(produce_frame("t", b"value") * PIPELINED)
            offsets = [offset_in(await answer(reader)) for _ in range(PIPELINED)]
        assert offsets == list(range(1, PIPELINED + 1))
        # One, unless the machine cuts what was sent in two.
        assert 1 <= len(synced) <= 2
        # And each is counted, although those that come and leave together are counted at once.
        counters = node.services.counters
        assert counters is not None
        assert sum(counters.requests("Produce").seconds.counts) == 1 + PIPELINED
        traffic = counters.topics.of("t")
        assert traffic.records_in == 1 + PIPELINED
        assert traffic.bytes_in == (1 + PIPELINED) * len(build_batch([Record(value=b"value")]))
        writer.close()
        await node.stop()

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scenario()

    asyncio.run(bounded())
