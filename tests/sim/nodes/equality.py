"""Whether the replicas of one group have come to the same end."""

from penstock.replication.replica import Replica


def unequal(replicas: list[Replica]) -> str:
    """Why a group is not settled and equal; empty if it is."""
    leaders = [replica for replica in replicas if replica.is_leader and replica.is_settled]
    if len(leaders) != 1:
        return f"{len(leaders)} settled leaders"
    core = leaders[0]._node
    by_id = {replica.id: replica for replica in replicas}
    if core.commit_index != core.last_index:
        return "not all is committed"
    for member in sorted(core.membership.members):
        replica = by_id.get(member)
        if replica is None or replica.stopped_because is not None:
            return f"{member} has no replica"
        if replica._applied_index != core.last_index:
            return f"{member} is at {replica._applied_index} of {core.last_index}"
    extra = sorted(by_id.keys() - core.membership.members)
    return f"{extra} have a replica and are not members" if extra else ""


def describe(replica: Replica) -> str:
    if replica.stopped_because is not None:
        return f"stopped: {replica.stopped_because}"
    core = replica._node
    return (
        f"{core.role.name} of term {core.term} led by {core.leader}, at {core.last_index}, commit "
        f"{core.commit_index}, {sorted(core.membership.voters)} {sorted(core.membership.learners)}"
    )
