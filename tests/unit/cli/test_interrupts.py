"""Signals end a command at a safe point, or at once where it only waits."""

import os
import signal
from collections.abc import Iterator

import pytest

from penstock.cli.failures import exit_code_of
from penstock.cli.interrupts import Interrupted, Interrupts


def test_a_signal_is_noted_and_raised_at_the_next_safe_point() -> None:
    with Interrupts() as interrupts:
        interrupts.check()
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.noted == signal.SIGTERM
        with pytest.raises(Interrupted) as caught:
            interrupts.check()
    assert exit_code_of(caught.value) == 128 + signal.SIGTERM


def test_a_wait_for_input_is_interrupted_at_once() -> None:
    def lines() -> Iterator[str]:
        yield "first"
        os.kill(os.getpid(), signal.SIGINT)
        yield "never"

    seen: list[str] = []
    with Interrupts() as interrupts, pytest.raises(Interrupted):
        seen.extend(interrupts.waiting_for(lines()))
    assert seen == ["first"]


def test_a_signal_between_the_last_look_and_the_wait_is_not_missed() -> None:
    class SignalledBehindItsBack(Interrupts):
        def check(self) -> None:
            super().check()
            os.kill(os.getpid(), signal.SIGINT)

    def lines() -> Iterator[str]:
        pytest.fail("a terminal would be waited for, with nobody to type")
        yield ""

    with SignalledBehindItsBack() as interrupts, pytest.raises(Interrupted):
        next(interrupts.waiting_for(lines()))


def test_items_that_came_before_a_signal_are_handed_out() -> None:
    seen: list[str] = []
    with Interrupts() as interrupts:
        waiting = interrupts.waiting_for(iter("abc"))
        seen.append(next(waiting))
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted):
            next(waiting)
    assert seen == ["a"]


def test_the_handlers_of_before_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        assert signal.getsignal(signal.SIGINT) == interrupts._on_signal
        os.kill(os.getpid(), signal.SIGINT)
        # The second one is the system's own: it ends the process at once.
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == before
