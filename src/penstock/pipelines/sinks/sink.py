"""What every sink is to the runner: it takes a micro-batch and knows it again."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.model.errors import Explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One micro-batch of one query, forever.

    Its identity is the query's id, which is born with a checkpoint, and the number of the batch.
    The names only say to people whose it was: a flow that starts again counts from 0 again.
    """

    query: str
    batch: int
    pipeline: str
    flow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a sink did with a micro-batch; `rows` is None where it can't be known cheaply."""

    rows: int | None = None
    files: int = 0
    size: int = 0
    was_there: bool = False
    """The epoch had been committed before, so that nothing was written."""


class SinkRefused(Explained):
    """The sink can't take these rows; the text is one sentence."""


class Sink(Protocol):
    """Each of `sinks/`; a new one for each start of a flow."""

    def prepare(self, schema: "StructType") -> None:
        """Refuse (SinkRefused) what can be known to fail, before a query starts."""

    def write(self, frame: "DataFrame", epoch: Epoch) -> Written:
        """Runs exactly one action on the frame; called again with an epoch after a crash."""

    def queries_before(self, pipeline: str, flow: str) -> frozenset[str]:
        """Ids of queries of this flow whose epochs the sink holds; empty where it can't know."""

    def clear(self) -> None:
        """Remove what flows have written, for a reset that asks for it."""
