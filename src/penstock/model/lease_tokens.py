"""Tokens of leases: what somebody who polls a queue through a door shows later to ack a record.

A token names one record and one delivery attempt of it. It proves that by a digest whose key is
the lease's own secret: the member id under which the poll leased the record. The id is chosen by
chance for each poll, is stored with the lease, and never leaves the cluster. So the leader of the
queue can check a token, without anything that all nodes would have to share, and a token can
neither be guessed nor changed into another one.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from penstock.model.ids import MemberId, TopicId

# Members of this prefix are polls through doors; no client of Kafka may act as one.
DOOR_PREFIX: Final = "door:"
_VERSION: Final = 1
_PROOF_BYTES: Final = 12
# Version, topic, partition, offset, attempt, proof: 45 bytes, which are 60 characters.
_TOKEN: Final = Struct(f">B16sIQI{_PROOF_BYTES}s")
_HEAD: Final = Struct(">B16sI")
_RECORD: Final = Struct(">QI")
TOKEN_LENGTH: Final = 60
_TEXT: Final = re.compile(f"[A-Za-z0-9_-]{{{TOKEN_LENGTH}}}")
# Polls whose keys are remembered: a request is most often about one or a few.
_PROVERS_MAX: Final = 256


class LeaseToken(NamedTuple):
    topic_id: TopicId
    partition: int
    offset: int
    attempt: int
    proof: bytes

    def __str__(self) -> str:
        packed = _TOKEN.pack(_VERSION, self.topic_id.bytes, *self[1:])
        return urlsafe_b64encode(packed).decode()


def read_token(text: str) -> LeaseToken | None:
    """None for what is not a token."""
    # Of these characters, each text stands for other bytes.
    if _TEXT.fullmatch(text) is None:
        return None
    version, topic, *rest = _TOKEN.unpack(urlsafe_b64decode(text))
    return LeaseToken(TopicId(UUID(bytes=topic)), *rest) if version == _VERSION else None


def token_maker(
    topic_id: TopicId, partition: int, member_id: MemberId
) -> Callable[[int, int], str]:
    """Makes the tokens of what one poll has leased in one partition, by offset and attempt."""
    proof = prover(member_id)
    # It has a multiple of three bytes, so its text is the same in all of them.
    head = urlsafe_b64encode(_HEAD.pack(_VERSION, topic_id.bytes, partition)).decode()

    def token(offset: int, attempt: int) -> str:
        rest = _RECORD.pack(offset, attempt) + proof(offset, attempt)
        return head + urlsafe_b64encode(rest).decode()

    return token


def door_member(secret: str) -> MemberId:
    return MemberId(DOOR_PREFIX + secret)


def is_door_member(member_id: MemberId | None) -> bool:
    return member_id is not None and member_id.startswith(DOOR_PREFIX)


def proof_of(member_id: MemberId, offset: int, attempt: int) -> bytes:
    return prover(member_id)(offset, attempt)


@lru_cache(_PROVERS_MAX)
def prover(member_id: MemberId) -> Callable[[int, int], bytes]:
    """Proofs for records that one poll has leased in one partition."""
    keyed = blake2b(key=member_id.encode()[:64], digest_size=_PROOF_BYTES)

    def proof(offset: int, attempt: int) -> bytes:
        digest = keyed.copy()
        digest.update(_RECORD.pack(offset, attempt))
        return digest.digest()

    return proof


def is_proven(proof: bytes, member_id: MemberId, offset: int, attempt: int) -> bool:
    return compare_digest(proof, proof_of(member_id, offset, attempt))
