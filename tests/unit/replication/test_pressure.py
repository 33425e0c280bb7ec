"""Proves that doors are told to pause at half of the bound, and to go on when it is over."""

import asyncio

from penstock.model.limits import MIB, Limits
from penstock.replication.backlog import SHARED_CROWDED_BYTES_MAX, Backlog
from penstock.replication.pressure import Pressure


def pressure() -> Pressure:
    return Pressure(Limits(unflushed_bytes_max=100))


async def test_it_is_over_beyond_half_of_the_bound_and_relieved_below() -> None:
    meter = pressure()
    relieved: list[str] = []
    meter.add(50)
    assert not meter.is_over
    meter.add(1)
    assert meter.is_over
    meter.on_relief(lambda: relieved.append("now"))
    meter.remove(1)
    assert not meter.is_over
    assert relieved == [], "anyone who releases bytes is not interrupted"
    await asyncio.sleep(0)
    assert relieved == ["now"]
    meter.remove(50)
    await asyncio.sleep(0)
    assert relieved == ["now"]


def test_without_pressure_relief_is_at_once() -> None:
    relieved: list[str] = []
    pressure().on_relief(lambda: relieved.append("now"))
    assert relieved == ["now"]


def test_a_single_crowded_partition_is_enough() -> None:
    meter = pressure()
    meter.add(10)
    meter.crowd()
    assert meter.is_over
    meter.remove(10)
    assert meter.is_over
    meter.uncrowd()
    assert not meter.is_over


def test_there_is_room_up_to_the_bound_itself() -> None:
    meter = pressure()
    meter.add(60)
    assert meter.has_room(40)
    assert not meter.has_room(41)
    assert pressure().has_room(101)


def test_a_partition_with_followers_is_crowded_earlier() -> None:
    meter = Pressure(Limits(unflushed_bytes_max=400 * MIB))
    alone, shared = Backlog(meter, 100 * MIB), Backlog(meter, 100 * MIB)
    shared.share()
    alone.add(SHARED_CROWDED_BYTES_MAX + 1)
    assert not meter.is_over
    shared.add(SHARED_CROWDED_BYTES_MAX + 1)
    assert meter.is_over
    assert shared.has_room(50 * MIB)
    shared.remove(1)
    assert not meter.is_over
