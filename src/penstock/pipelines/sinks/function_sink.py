"""A flow into a Python function of the user's, which gets each micro-batch."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.pipelines.sinks.sink import Epoch, SinkRefused, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BATCH_NAMES = ("batch", "batch_id", "epoch_id")


class FunctionWriter:
    """`(frame)` or `(frame, batch_id)`, as Spark's foreachBatch has it.

    At least once: after a crash the function gets the same batch with the same number again.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def prepare(self, schema: "StructType") -> None:
        self._takes_batch()

    def write(self, frame: "DataFrame", epoch: Epoch) -> Written:
        if self._takes_batch():
            self._function(frame, epoch.batch)
        else:
            self._function(frame)
        return Written()

    def queries_before(self, pipeline: str, flow: str) -> frozenset[str]:
        """Only the function knows."""
        return frozenset()

    def clear(self) -> None:
        """What the function did is not known here."""

    def _takes_batch(self) -> bool:
        """Whether it wants the number of the batch too; raises SinkRefused if neither fits."""
        try:
            parameters = inspect.signature(self._function).parameters.values()
        except (TypeError, ValueError):
            # Written in C, without a description: then the usual two.
            return True
        by_place = [each for each in parameters if each.kind in _BY_PLACE]
        takes_all = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
        needed = [each for each in by_place if each.default is inspect.Parameter.empty]
        unnamed = [
            each.name
            for each in parameters
            if each.kind is inspect.Parameter.KEYWORD_ONLY
            and each.default is inspect.Parameter.empty
        ]
        if unnamed or len(needed) > 2 or (not by_place and not takes_all):
            raise SinkRefused(
                f"The function {self._name} must take (frame) or (frame, batch_id),"
                f" not {inspect.signature(self._function)}."
            )
        # A second parameter that can do without a value is some setting, unless it says otherwise.
        return takes_all or len(needed) == 2 or any(p.name in _BATCH_NAMES for p in by_place[1:2])

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", repr(self._function))
