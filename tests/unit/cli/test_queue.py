"""Names and values of a queue's settings, as people type them."""

import click
import pytest

from penstock.cli.queue import PREFIXES, SHORT_NAMES, _change, _full_name
from penstock.cluster.group_settings import GROUP_SETTINGS

LOCK = "share.record.lock.duration.ms"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lock.duration=60s", (LOCK, "60000")),
        ("lock.duration=2m", (LOCK, "120000")),
        (" lock.duration = 500ms ", (LOCK, "500")),
        ("record.lock.duration.ms=60000", (LOCK, "60000")),
        (f"{LOCK}=60000", (LOCK, "60000")),
        (f"{LOCK}=1h", (LOCK, "3600000")),
        ("start=latest", ("share.auto.offset.reset", "latest")),
        ("delivery.limit=3", ("share.delivery.count.limit", "3")),
        # What it may be is the broker's to say.
        (f"{LOCK}=soon", (LOCK, "soon")),
        ("share.made.up=1", ("share.made.up", "1")),
    ],
)
def test_a_setting_has_short_names_and_units(typed: str, meant: tuple[str, str]) -> None:
    assert _change(typed) == meant


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("lock.duration", "is not NAME=VALUE"),
        ("=5", "is not NAME=VALUE"),
        ("lock.duration=", "is not NAME=VALUE"),
        ("lock.duration=60", "needs a unit, as in lock.duration=60s"),
        ("lock.duration=60x", "needs a unit"),
        ("made.up=1", "There is no setting 'made.up'; there are start, "),
        ("consumer.session.timeout.ms=1", "There is no setting"),
    ],
)
def test_what_makes_no_sense_is_told(typed: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        _change(typed)


def test_every_setting_of_a_queue_has_a_short_name() -> None:
    known = {name for name in GROUP_SETTINGS if name.startswith(PREFIXES)}
    assert set(SHORT_NAMES.values()) == known
    assert {_full_name(short) for short in SHORT_NAMES} == known
