"""Options of topics as sources and sinks: short keys for some, and each checked at its place."""

from collections.abc import Iterable, Mapping

from penstock.pipelines.specification.context import Context
from penstock.pipelines.specification.fields import Fields
from penstock.pipelines.specification.problems import Place
from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import Given
from penstock.spark.options.kafka_settings import READING, WRITING, check_kafka_settings
from penstock.spark.options.misspelt import READ_OPTIONS, WRITE_OPTIONS, check_names
from penstock.spark.options.reading import read_options
from penstock.spark.options.writing import write_options

BROKERS_DEFAULT = "localhost:9092"
BOOTSTRAP = "kafka.bootstrap.servers"


def read_topic_options(
    fields: Fields, context: Context, *, short: Mapping[str, tuple[str, str]], is_source: bool
) -> dict[str, str]:
    """Options from short keys, and those under `options:`, which must not say the same again.

    `short` has the key and the value of each option that a short key gives.
    """
    options = {name: value for name, (_, value) in short.items()}
    places = {name.lower(): fields.text_place(key) for name, (key, _) in short.items()}
    taken = {name.lower(): key for name, (key, _) in short.items() if fields.has(key)}
    for name, value in fields.scalar_pairs("options"):
        if name.text.lower() in taken:
            key = taken[name.text.lower()]
            said = f"The option {name.text} is already given by the key {key}."
            context.problem(name.place, said)
            continue
        # A default gives way, in whatever case the option is written.
        options = {one: text for one, text in options.items() if one.lower() != name.text.lower()}
        options[name.text] = value.text
        places[name.text.lower()] = name.place
    # Without all values, what is wrong may only be what is missing.
    if not fields.lacks_values():
        _check(options, places, fields.place, context, is_source=is_source)
    return options


def is_read_option(name: str) -> bool:
    return _is_among(name, READ_OPTIONS)


def is_write_option(name: str) -> bool:
    return _is_among(name, WRITE_OPTIONS)


def _is_among(name: str, options: Iterable[str]) -> bool:
    return name.startswith("kafka.") or name.lower() in {one.lower() for one in options}


def _check(
    options: Mapping[str, str],
    places: Mapping[str, Place],
    place: Place,
    context: Context,
    *,
    is_source: bool,
) -> None:
    before = len(context.problems)
    for name, value in options.items():
        try:
            _check_name(name, value, is_source)
        except OptionError as error:
            # The data source knows names in lower case only.
            sentence = str(error).replace(f" {name.lower()}", f" {name}", 1)
            context.problem(places.get(name.lower(), place), sentence)
    if len(context.problems) > before:
        return
    try:
        _check_all(options, is_source)
    except OptionError as error:
        named = [name for name in places if name in str(error).lower()]
        context.problem(places[max(named, key=len)] if named else place, str(error))


def _check_name(name: str, value: str, is_source: bool) -> None:
    given = Given.of({name: value})
    check_names(given)
    check_kafka_settings(given, READING if is_source else WRITING)


def _check_all(options: Mapping[str, str], is_source: bool) -> None:
    if is_source:
        read_options(options, streaming=True)
    else:
        write_options(options, streaming=True)
