"""What one run of whole nodes counted."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    seed: int
    steps: int
    seconds: float
    groups: int
    terms: int
    committed: int
    acknowledged: int
    changes_of_topics: int
    commits_of_offsets: int
    deletions_of_offsets: int
    generations: int
    commits_of_members: int
    fenced: int
    # Static members that came back to the generation they had left.
    returned: int
    # Of the new protocol, where a run has members of it.
    commits_of_team: int
    fenced_of_team: int
    handed_over: int
    # Of a share group, where a run has workers.
    delivered: int
    redelivered: int
    acked: int
    refused_acks: int
    dead_letters: int
    brought_back: int
    # That their producers wanted later, and that came after others of their key.
    delivered_later: int
    delivered_in_order: int
    # Records that a leader may have given up for their age, and polls of a queue that was paused.
    expired: int
    polls_of_paused: int
    read: int
    read_from_followers: int
    fetched_in_sessions: int
    stops: int
    moves: int
    disks_replaced: int
    bits_flipped: int
    # Histories of topics that were too wide to be judged: of them nothing is known.
    histories_given_up: int
