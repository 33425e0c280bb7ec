"""What a wire client is given once; it travels to other processes by pickle."""

from dataclasses import dataclass, replace
from typing import Self

# The operating system sizes the buffers of a socket by itself.
SYSTEM_DEFAULT = 0
# Long enough for an operator who puts a new version on the brokers.
OUTAGE_S_MAX = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSettings:
    bootstrap: str
    client_id: str = "penstock"
    # How long one broker may take for one answer.
    request_timeout_s: float = 30.0
    # How long nothing may get better, over all brokers and attempts.
    retry_timeout_s: float = OUTAGE_S_MAX
    # The same before anybody has answered for the first time: the address is probably wrong.
    first_contact_timeout_s: float = 5.0
    # Of one partition and of one answer.
    fetch_bytes_max: int = 4 << 20
    fetch_wait_ms: int = 500
    # Answers that a fetcher holds ready while its reader is busy with one.
    fetches_ahead_max: int = 2
    receive_buffer_bytes: int = SYSTEM_DEFAULT
    send_buffer_bytes: int = SYSTEM_DEFAULT
    isolation_read_committed: bool = False
    metadata_ttl_s: float = 300.0

    def once_reached(self) -> Self:
        """For the clients of a job that has found brokers at this address already.

        When nobody answers them, the address is right and the brokers are away.
        """
        return replace(self, first_contact_timeout_s=self.retry_timeout_s)

    def hurried(self, limit_s: float) -> Self:
        """For what is not worth a longer wait."""
        return replace(
            self,
            request_timeout_s=min(self.request_timeout_s, limit_s),
            retry_timeout_s=min(self.retry_timeout_s, limit_s),
            first_contact_timeout_s=min(self.first_contact_timeout_s, limit_s),
        )
