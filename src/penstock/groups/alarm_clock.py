"""The alarm clock of a coordinator: after a stall of the process, sessions get a little longer."""

from collections.abc import Callable

from penstock.groups.effects import Timer
from penstock.model.clock import Clock
from penstock.model.ids import GroupId, MemberId
from penstock.replication import alarm_clock

TimerKey = tuple[GroupId, Timer, MemberId]


class AlarmClock(alarm_clock.AlarmClock[TimerKey]):
    def __init__(self, clock: Clock, on_time: Callable[[TimerKey], None]) -> None:
        super().__init__(clock, on_time, has_grace=lambda key: key[1] is Timer.SESSION)
