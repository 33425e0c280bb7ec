"""Membership of a share group: joins, keeps its place by heartbeats, and leaves (KIP-932)."""

import threading
import uuid
from collections.abc import Callable, Sequence

from penstock.client.errors import ClientError
from penstock.client.wire.cluster_map import ClusterMap
from penstock.client.wire.coordinators import Coordinators
from penstock.client.wire.errors import name_of, refused
from penstock.client.wire.patience import Stopped
from penstock.client.wire.queue_leases import SharePlace
from penstock.protocol.kafka.error_codes import RETRIABLE, ErrorCode
from penstock.protocol.kafka.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
# A coordinator assigns a little after somebody joins; until then it is asked more often than it
# says, so many times.
JOINING_PAUSE_S = 0.3
JOINING_HEARTBEATS_MAX = 30
HEARTBEAT_S_MIN = 0.1
_REJOIN_CODES = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_FOREIGN_CODES = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


class NotAQueue(ClientError):
    """The name belongs to a group of another kind."""


class QueueMember:
    """A thread of its own; `assigned` and `failed` are called from it."""

    def __init__(
        self,
        cluster_map: ClusterMap,
        coordinators: Coordinators,
        group: str,
        topics: Sequence[str],
        *,
        assigned: Callable[[frozenset[SharePlace]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.member_id = str(uuid.uuid4())
        self._map = cluster_map
        self._coordinators = coordinators
        self._group = group
        self._topics = list(topics)
        self._assigned = assigned
        self._failed = failed
        self._epoch = JOIN_EPOCH
        self._is_assigned = False
        self._joining_left = JOINING_HEARTBEATS_MAX
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member of {group}", daemon=True)

    @property
    def is_started(self) -> bool:
        return self._thread.ident is not None

    def start(self) -> None:
        self._thread.start()

    def leave(self, limit_s: float) -> None:
        """Ends the heartbeats and says so to the coordinator, if that answers soon enough."""
        self._stop.set()
        self._thread.join(limit_s)
        if self._epoch == JOIN_EPOCH:
            return
        patience = self._map.patience(f"leaving group {self._group}", limit_s=limit_s)
        request = ShareGroupHeartbeatRequest(
            group_id=self._group, member_id=self.member_id, member_epoch=LEAVE_EPOCH
        )
        try:
            self._coordinators.ask(
                self._group,
                request,
                ShareGroupHeartbeatResponse,
                lambda found: _passing(found.error_code),
                patience=patience,
            )
        except ClientError:
            # Without heartbeats the coordinator notices by itself.
            return

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._stop.wait(self._beat())
        except Stopped:
            return
        except BaseException as error:
            # It is raised where records are taken.
            self._failed(error)

    def _beat(self) -> float:
        """One heartbeat; returns how long to wait before the next one."""
        is_joining = self._epoch == JOIN_EPOCH
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=self._topics if is_joining else None,
        )
        answer = self._coordinators.ask(
            self._group,
            request,
            ShareGroupHeartbeatResponse,
            self._complaint,
            patience=self._map.patience(f"group {self._group}", self._stop),
        )
        if answer.error_code in _REJOIN_CODES:
            self._epoch = JOIN_EPOCH
            return 0.0
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._take(answer)
        return self._pause_s(answer.heartbeat_interval_ms)

    def _take(self, answer: ShareGroupHeartbeatResponse) -> None:
        assert answer.assignment is not None
        places = frozenset(
            SharePlace(topic.topic_id, partition)
            for topic in answer.assignment.topic_partitions
            for partition in topic.partitions
        )
        self._is_assigned = bool(places)
        self._assigned(places)

    def _pause_s(self, interval_ms: int) -> float:
        pause_s = max(interval_ms / 1000, HEARTBEAT_S_MIN)
        if self._is_assigned or self._joining_left == 0:
            return pause_s
        self._joining_left -= 1
        return min(pause_s, JOINING_PAUSE_S)

    def _complaint(self, answer: ShareGroupHeartbeatResponse) -> str | None:
        code = answer.error_code
        if code in _REJOIN_CODES:
            return None
        if code in _FOREIGN_CODES:
            raise NotAQueue(f"Group {self._group} exists and is not a queue (a share group).")
        if code == ErrorCode.GROUP_MAX_SIZE_REACHED:
            raise ClientError(f"Group {self._group} has as many members as it may have.")
        if code not in RETRIABLE and code != ErrorCode.NONE:
            raise refused(f"to let us join group {self._group}", code, answer.error_message)
        return _passing(code)


def _passing(code: int) -> str | None:
    return name_of(code) if code in RETRIABLE else None
