"""Proves that what is counted comes out as text that Prometheus's own parsers read back."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from penstock.observe.exposition import (
    OPEN_METRICS_TYPE,
    PLAIN_TYPE,
    content_type,
    exposition,
)
from penstock.observe.families import FAMILIES, OTHERS, Kind, Sample
from penstock.observe.instruments import Bounded, Histogram, Traffic
from penstock.observe.node_counters import LoopDelay, NodeCounters
from penstock.observe.process_facts import process_samples

ODD = 'a "name"\\with\nall'


def sample_of(name: str) -> Sample:
    family = FAMILIES[name]
    labels = [ODD] * len(family.labels)
    if family.kind is Kind.HISTOGRAM:
        return labels, [1.0, *[0.0] * (len(family.bounds) - 1), 2.0, 12.5]
    return labels, 3


@pytest.mark.parametrize(
    ("kind", "parse"), [(PLAIN_TYPE, plain), (OPEN_METRICS_TYPE, open_metrics)]
)
def test_every_family_is_read_back_in_both_formats(kind, parse) -> None:  # type: ignore[no-untyped-def]
    text = exposition({name: [sample_of(name)] for name in FAMILIES}, kind).decode()
    found = {family.name: family for family in parse(text)}
    for name, family in FAMILIES.items():
        read = found[name.removesuffix("_total")]
        assert (read.type, read.documentation) == (str(family.kind), family.help)
        assert {each.name for each in read.samples} == set(family.series())
        for each in read.samples:
            assert {each.labels[label] for label in family.labels} <= {ODD}
        if family.kind is Kind.HISTOGRAM:
            buckets = [each.value for each in read.samples if each.name.endswith("_bucket")]
            assert (buckets[0], buckets[-2], buckets[-1]) == (1, 1, 3)


def test_names_follow_the_rules() -> None:
    for name, family in FAMILIES.items():
        assert name.startswith(("penstock_", "process_", "python_"))
        assert name.endswith("_total") == (family.kind is Kind.COUNTER)
        assert family.help.endswith(".")


@pytest.mark.parametrize(
    ("accept", "answer"),
    [
        ("", PLAIN_TYPE),
        ("*/*", PLAIN_TYPE),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", PLAIN_TYPE),
        ("application/openmetrics-text;version=1.0.0;q=0.75,text/plain;q=0.5", OPEN_METRICS_TYPE),
        ("application/openmetrics-text; q=0, text/plain", PLAIN_TYPE),
        (";;,,", PLAIN_TYPE),
    ],
)
def test_open_metrics_is_for_those_who_ask(accept: str, answer: str) -> None:
    assert content_type(accept) == answer


def test_a_value_counts_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.sample() == [2, 1, 1, 12.0]
    histogram.observe(1.5, 3)
    assert histogram.sample() == [2, 4, 1, 16.5]


def test_too_many_labels_share_one_and_keep_what_they_got() -> None:
    bounded: Bounded[str, Traffic] = Bounded(Traffic, 2, OTHERS)
    first, second, third = (bounded.of(name) for name in "abc")
    assert bounded.of("a") is first
    assert third is bounded.of("d") is bounded.others
    assert bounded.left_out == 2
    assert [label for label, _ in bounded] == ["a", "b", OTHERS]
    bounded.forget("a")
    # What was left out stays with the others: their count must not go back.
    assert bounded.of("c") is bounded.others
    assert bounded.of("e") is not bounded.others
    assert next(each for _, each in bounded) is second
    bounded.forget("c")
    bounded.forget("d")
    assert OTHERS not in [label for label, _ in bounded]


def test_a_hundred_thousand_topics_have_a_bounded_number_of_series() -> None:
    counters = NodeCounters(lambda: 0.0)
    for number in range(100_000):
        counters.topics.of(f"topic-{number}").records_in += 1
    shown = dict(counters.topics)
    assert len(shown) == 1_001
    assert shown[OTHERS].records_in == 99_000 == counters.topics.left_out


def test_the_delay_of_the_loop_is_what_a_timer_is_late() -> None:
    now = [10.0]
    counters = NodeCounters(lambda: now[0])
    delay = LoopDelay(counters, 0.1)
    for passed in (0.0, 0.1, 1.1, 0.1):
        now[0] += passed
        delay.tick()
    assert sum(counters.loop_delay.counts) == 3
    assert counters.loop_delay.total == pytest.approx(1.0)


def test_the_process_is_described() -> None:
    samples = process_samples()
    assert samples.keys() <= FAMILIES.keys()
    assert samples["process_cpu_seconds_total"][0][1] > 0  # type: ignore[operator]
