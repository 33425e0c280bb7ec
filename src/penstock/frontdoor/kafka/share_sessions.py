"""Share sessions (KIP-932): the broker remembers which partitions a member of a share group reads.

A member has one session with each broker that it fetches from. It names its partitions when it
opens the session, and later only those that come and go. Each request carries the next epoch, so
that none is lost or handled twice.

A session belongs to the connection that opened it, and ends with it: records that its member still
has go to others at once. Requests may come over any connection. There is a limit to their number;
when it is reached, a new one is refused, because none of those that are there may be dropped.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from penstock.frontdoor.kafka.errors import RefusedWith
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicId
from penstock.protocol.kafka.error_codes import ErrorCode

# A request with one of these epochs opens a session, or closes it.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1
# Partitions in all sessions together, which bounds what they may cost.
SESSION_PARTITIONS_MAX: Final = 500_000

# How long a member that takes and acks without a pause gets records of one partition, while others
# have some too.
STAY_S_MAX: Final = 0.05

ShareKey = tuple[TopicId, int]


class SessionKey(NamedTuple):
    group_id: GroupId
    member_id: MemberId


class ShareSession:
    """The partitions stand in the order in which they are served; the one that was served last is
    the last one, unless the session stays with it for a moment."""

    __slots__ = ("_partitions", "_stays_until", "_stays_with", "connection_id", "epoch", "key")

    def __init__(self, key: SessionKey, connection_id: int, partitions: Iterable[ShareKey]) -> None:
        self.key = key
        self.connection_id = connection_id
        # What the next request has to say.
        self.epoch = 1
        self._partitions = dict.fromkeys(partitions)
        self._stays_with: ShareKey | None = None
        self._stays_until = 0.0

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, key: ShareKey) -> bool:
        return key in self._partitions

    def in_turn(
        self, epoch: int, acked: Collection[ShareKey] = (), now: float = 0.0
    ) -> list[ShareKey]:
        """All partitions, in the order for a request with this epoch: each one begins with another
        partition, or the first ones would be served alone as long as they have records.

        But if the request acks what the last one got, and that is a moment ago, it begins with the
        same one: the acks and the new leases are stored together.
        """
        order = list(self._partitions)
        start = epoch % len(order) if order and epoch > INITIAL_EPOCH else 0
        order = order[start:] + order[:start]
        last = self._stays_with
        if last is not None and last in acked and now < self._stays_until and last in self:
            order.remove(last)
            order.insert(0, last)
        return order

    def served(self, key: ShareKey, now: float = 0.0) -> None:
        if key in self._partitions:
            del self._partitions[key]
            self._partitions[key] = None
        if key != self._stays_with or now >= self._stays_until:
            self._stays_with, self._stays_until = key, now + STAY_S_MAX

    def change(self, added: Iterable[ShareKey], forgotten: Iterable[ShareKey]) -> None:
        for key in added:
            self._partitions.setdefault(key)
        for key in forgotten:
            self._partitions.pop(key, None)

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1


class ShareSessions:
    """All share sessions of this broker."""

    def __init__(self, sessions_max: int, partitions_max: int = SESSION_PARTITIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[int, dict[SessionKey, None]] = {}
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def open(
        self, key: SessionKey, connection_id: int, partitions: Sequence[ShareKey]
    ) -> ShareSession:
        """Takes the place of a session that the member has already, which stays if this one is
        refused."""
        session, before = ShareSession(key, connection_id, partitions), self.find(key)
        if before is None and len(self._sessions) >= self._sessions_max:
            detail = f"There are {self._sessions_max} share sessions on this broker."
            raise RefusedWith(ErrorCode.SHARE_SESSION_LIMIT_REACHED, detail)
        self._check_room(len(session) - (0 if before is None else len(before)))
        self.close(key)
        self._sessions[key] = session
        self._by_connection.setdefault(connection_id, {})[key] = None
        self._partition_count += len(session)
        return session

    def step(
        self,
        key: SessionKey,
        epoch: int,
        added: Iterable[ShareKey] = (),
        forgotten: Iterable[ShareKey] = (),
    ) -> ShareSession:
        """The session of a request that neither opens nor closes one; refuses one out of step."""
        session = self.get(key)
        if session.epoch != epoch:
            detail = f"The share session is at epoch {session.epoch}, not {epoch}."
            raise RefusedWith(ErrorCode.INVALID_SHARE_SESSION_EPOCH, detail)
        new = {each for each in added if each not in session}
        self._check_room(len(new))
        before = len(session)
        session.change(added, forgotten)
        self._partition_count += len(session) - before
        session.advance()
        return session

    def get(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            detail = "The member has no share session with this broker."
            raise RefusedWith(ErrorCode.SHARE_SESSION_NOT_FOUND, detail)
        return session

    def close(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        self._partition_count -= len(session)
        keys = self._by_connection[session.connection_id]
        del keys[key]
        if not keys:
            del self._by_connection[session.connection_id]
        return session

    def connection_closed(self, connection_id: int) -> list[ShareSession]:
        """The sessions that end with their connection."""
        keys = list(self._by_connection.get(connection_id, ()))
        return [session for key in keys if (session := self.close(key)) is not None]

    def _check_room(self, more: int) -> None:
        if self._partition_count + more > self._partitions_max:
            detail = f"Share sessions on this broker have {self._partitions_max} partitions."
            raise Refused(Reason.INVALID_REQUEST, detail)
