"""The bounds and rhythms of one Raft group. Time is counted in ticks, which the host gives."""

from dataclasses import dataclass

from penstock.model.limits import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    # An election starts after between one and two times this many ticks without a leader; a
    # leader that hears from no quorum for this many ticks resigns.
    election_ticks: int = 10
    heartbeat_ticks: int = 1
    # The host beats once per pair of nodes for all groups; the core then sends heartbeats of its
    # own only where it needs an answer (reads, a lost commit notice, a follower that forgot us).
    heartbeats_by_host: bool = False
    append_bytes_max: int = MIB
    # What may be on its way to one follower without an acknowledgement.
    appends_in_flight_max: int = 64
    bytes_in_flight_max: int = 8 * MIB
    # Proposed but not yet committed; beyond it proposals are refused until commits catch up.
    uncommitted_bytes_max: int = 64 * MIB
    # Replicas whose leader's process is known to be gone stand for election in turn, and this many
    # times they try again after two to this many more ticks before they wait as long as usual.
    leader_lost_hurries_max: int = 6
    hurry_ticks_max: int = 3
    # A snapshot that is not acknowledged within this many election time-outs is offered again.
    snapshot_wait_rounds_max: int = 10
    reads_waiting_max: int = 10_000

    def __post_init__(self) -> None:
        assert self.election_ticks > self.heartbeat_ticks > 0
        assert self.appends_in_flight_max > 0
        assert self.append_bytes_max > 0
