"""Checks the topics of a pipeline at their brokers: reachable, there, with those partitions."""

from collections.abc import Callable, Iterator, Mapping

from penstock.client.admin import Admin
from penstock.client.connection import DEFAULT_BOOTSTRAP
from penstock.client.errors import ClientError
from penstock.pipelines.building.words import place_of_word
from penstock.pipelines.checking.checking import in_file_order
from penstock.pipelines.specification.model import Flow, Pipeline, TopicSink, TopicSource
from penstock.pipelines.specification.problems import Place, Problem
from penstock.spark.options.given import Given
from penstock.spark.options.misspelt import nearest, nearest_hint
from penstock.spark.options.selection import Assigned, Pattern, Topics, read_selection

BOOTSTRAP = "kafka.bootstrap.servers"
TIMEOUT_S = 10.0

Partitions = Mapping[str, int]
Answer = Partitions | ClientError


def asked(bootstrap: str) -> Answer:
    """The topics behind an address, or why they are not known."""
    try:
        topics = Admin(bootstrap, timeout_s=TIMEOUT_S).topics.all()
    except ClientError as error:
        return error
    return {topic.name: topic.partitions for topic in topics}


def check_topics(pipeline: Pipeline, ask: Callable[[str], Answer] = asked) -> list[Problem]:
    """What the brokers say against the topics that are read and written; each is asked once."""
    brokers = Brokers(ask)
    found = [
        problem
        for source in pipeline.sources.values()
        if isinstance(source, TopicSource)
        for problem in _source_problems(source, brokers)
    ]
    found += [
        problem for flow in pipeline.flows.values() for problem in _flow_problems(flow, brokers)
    ]
    return in_file_order(dict.fromkeys(found))


class Brokers:
    """What each address has answered."""

    def __init__(self, ask: Callable[[str], Answer]) -> None:
        self._ask = ask
        self._answers: dict[str, Answer] = {}

    def topics(self, bootstrap: str) -> Answer:
        if bootstrap not in self._answers:
            self._answers[bootstrap] = self._ask(bootstrap)
        return self._answers[bootstrap]


def _source_problems(source: TopicSource, brokers: Brokers) -> Iterator[Problem]:
    given = Given.of(source.options)
    bootstrap = given.text(BOOTSTRAP) or DEFAULT_BOOTSTRAP
    topics = brokers.topics(bootstrap)
    if isinstance(topics, ClientError):
        yield Problem(_brokers_place(source.place, bootstrap), str(topics))
        return
    match read_selection(given):
        case Topics(names=names):
            for name in names:
                yield from _missing(name, topics, bootstrap, source.place, "topic")
        case Pattern() as pattern:
            if not any(pattern.matches(name) for name in topics):
                said = f"No topic at {bootstrap} matches the pattern {pattern.regex}."
                yield Problem(place_of_word(source.place, pattern.regex), said)
        case Assigned(partitions=partitions):
            for name, wanted in partitions.items():
                yield from _missing(name, topics, bootstrap, source.place, "assign")
                yield from _lacking(name, wanted, topics, source.place)


def _flow_problems(flow: Flow, brokers: Brokers) -> Iterator[Problem]:
    if not isinstance(flow.sink, TopicSink):
        return
    given = Given.of(flow.sink.options)
    bootstrap = given.text(BOOTSTRAP) or DEFAULT_BOOTSTRAP
    topics = brokers.topics(bootstrap)
    if isinstance(topics, ClientError):
        yield Problem(_brokers_place(flow.place, bootstrap), str(topics))
        return
    if topic := given.text("topic"):
        yield from _missing(topic, topics, bootstrap, flow.place, "topic")


def _brokers_place(place: Place, bootstrap: str) -> Place:
    """The address itself, or the key to which a parameter gave it."""
    found = place_of_word(place, bootstrap)
    return place_of_word(place, "brokers") if found == place else found


def _missing(
    name: str, topics: Partitions, bootstrap: str, place: Place, key: str
) -> Iterator[Problem]:
    if name in topics:
        return
    near = nearest(name, topics)
    hint = nearest_hint(near) if near else f": create it with penstock topic create {name}"
    # A dataset often has the name of its topic, so the search begins at the key.
    where = place_of_word(place_of_word(place, key), name)
    yield Problem(where, f"There is no topic {name} at {bootstrap}{hint}.")


def _lacking(
    name: str, wanted: tuple[int, ...], topics: Partitions, place: Place
) -> Iterator[Problem]:
    count = topics.get(name)
    for partition in wanted:
        if count is not None and partition >= count:
            said = f"The topic {name} has {count} partitions, and no partition {partition}."
            yield Problem(place_of_word(place, name), said)
