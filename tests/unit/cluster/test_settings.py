"""Single settings: parsing, bounds, and one normal form per value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.settings import (
    INT_MAX,
    LONG_MAX,
    BadValue,
    ConfigType,
    Setting,
    at_least,
    between,
    level_or_default,
    one_of,
    some_of,
    table,
)


def setting(kind: ConfigType, **more: object) -> Setting:
    return Setting(name="x", type=kind, default="0", documentation="", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "normal"),
    [
        (ConfigType.BOOLEAN, " TRUE ", "true"),
        (ConfigType.BOOLEAN, "False", "false"),
        (ConfigType.INT, " +5 ", "5"),
        (ConfigType.INT, str(INT_MAX), str(INT_MAX)),
        (ConfigType.LONG, str(-LONG_MAX - 1), str(-LONG_MAX - 1)),
        (ConfigType.SHORT, "-0", "0"),
        (ConfigType.DOUBLE, "1", "1.0"),
        (ConfigType.DOUBLE, "0.25", "0.25"),
        (ConfigType.LIST, " a , b,,", "a,b"),
        (ConfigType.LIST, "", ""),
        (ConfigType.STRING, " text ", "text"),
    ],
)
def test_normal_form(kind: ConfigType, text: str, normal: str) -> None:
    assert setting(kind).normalise(text) == normal


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, ""),
        (ConfigType.INT, "1.5"),
        (ConfigType.INT, "1e3"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "٣"),
        (ConfigType.INT, "9" * 5000),
        (ConfigType.INT, "-"),
        (ConfigType.INT, ""),
        (ConfigType.INT, str(INT_MAX + 1)),
        (ConfigType.LONG, str(LONG_MAX + 1)),
        (ConfigType.SHORT, "32768"),
        (ConfigType.DOUBLE, "nan"),
        (ConfigType.DOUBLE, "inf"),
        (ConfigType.DOUBLE, "half"),
    ],
)
def test_values_of_another_type_are_refused(kind: ConfigType, text: str) -> None:
    with pytest.raises(BadValue):
        setting(kind).parse(text)


def test_checks_say_what_is_wrong() -> None:
    cases = [
        (ConfigType.INT, at_least(1), "0", "at least 1"),
        (ConfigType.DOUBLE, between(0, 1), "1.5", "no more than 1"),
        (ConfigType.DOUBLE, between(0, 1), "-0.5", "at least 0"),
        (ConfigType.STRING, one_of("a", "b"), "c", "one of: a, b"),
        (ConfigType.LIST, some_of("a", "b"), "a,c", "one of: a, b"),
        (ConfigType.LIST, some_of("a", "b"), "a,a", "not be repeated"),
        (ConfigType.INT, level_or_default(1, 9, -1), "0", "between 1 and 9 or equal to -1"),
    ]
    for kind, check, text, said in cases:
        with pytest.raises(BadValue, match=said):
            setting(kind, check=check).parse(text)
    assert setting(ConfigType.INT, check=level_or_default(1, 9, -1)).parse("-1") == -1


@given(kind=st.sampled_from(ConfigType), text=st.text(max_size=50))
def test_any_text_gives_a_normal_form_that_stays_or_a_refusal(kind: ConfigType, text: str) -> None:
    try:
        normal = setting(kind).normalise(text)
    except BadValue:
        return
    assert setting(kind).normalise(normal) == normal


def test_a_setting_defined_twice_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        table(setting(ConfigType.INT), setting(ConfigType.INT))
