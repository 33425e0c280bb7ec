"""Turns what Spark, a decoder or an option's checker refuses into a problem with its place."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from penstock.model.errors import Explained
from penstock.pipelines.building.words import place_in_text, place_of_word
from penstock.pipelines.specification.problems import Place, Problem

SENTENCE_LENGTH_MAX = 400
# Below a sentence Spark prints the query's plan, the query itself, or the Java stack.
NOISE = re.compile(r"\s*(SQLSTATE: \w+|== SQL|\n\s*at |JVM stacktrace).*", re.DOTALL)
CONDITION = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
POSITION = re.compile(r"\(line (\d+), pos (\d+)\)")
JAVA_EXCEPTION = re.compile(r"^(?:[\w$.]+(?:Exception|Error)): ", re.MULTILINE)
QUOTES = "`'\""

Parameters = Mapping[str, str]


def problem_of(error: Exception, place: Place, sql_place: Place | None = None) -> Problem:
    """One problem; `sql_place` is where the SQL begins that Spark was given, if it was."""
    word = word_of(error)
    position = position_of(error)
    if sql_place is not None and position is not None:
        where = place_in_text(sql_place, *position, word)
    else:
        where = place_of_word(sql_place or place, word)
    return Problem(where, sentence_of(error))


def sentence_of(error: BaseException) -> str:
    """What went wrong in one or two sentences, without Spark's codes, plans and stacks."""
    if isinstance(error, Explained):
        return str(error)
    parameters = parameters_of(error)
    own = SENTENCES.get(condition_of(error) or "")
    if own is not None and parameters is not None:
        return own(parameters)
    return _shortened(_text_of(error))


def word_of(error: BaseException) -> str:
    """The word that the error is about, as the user is likely to have written it."""
    parameters = parameters_of(error) or {}
    for name in WORDS:
        if parameters.get(name):
            return last_part(parameters[name])
    fragments = [str(context.fragment()) for context in contexts_of(error)]
    return fragments[0] if fragments else _option_word(error)


def position_of(error: BaseException) -> tuple[int, int] | None:
    """Line (from 1) and position in it (from 0) of the wrong word in the SQL."""
    if match := POSITION.search(str(error)):
        return int(match[1]), int(match[2])
    origin = getattr(error, "_origin", None)
    if origin is None or not contexts_of(error):
        return None
    line, position = origin.line(), origin.startPosition()
    return (line.get(), position.get()) if line.isDefined() else None


def condition_of(error: BaseException) -> str | None:
    condition = getattr(error, "getCondition", None)
    return condition() if condition is not None else None


def parameters_of(error: BaseException) -> Parameters | None:
    parameters = getattr(error, "getMessageParameters", None)
    return parameters() if parameters is not None else None


def contexts_of(error: BaseException) -> list[Any]:
    """Those that point into SQL; those of Python code only repeat the traceback."""
    contexts = getattr(error, "getQueryContext", None)
    found = contexts() if contexts is not None else []
    return [context for context in found if context.contextType().name == "SQL"]


def last_part(text: str) -> str:
    """`temprature` of "`readings`.`temprature`"."""
    parts: list[str] = re.findall(r"`((?:[^`]|``)+)`", text)
    return parts[-1].replace("``", "`") if parts else text.strip(QUOTES)


def _text_of(error: BaseException) -> str:
    message = getattr(error, "getMessage", None)
    text = str(message()) if message is not None else ""
    if text and text != "[None] None":
        return text
    # What Java threw before Spark could make an error of its own of it.
    java = getattr(error, "java_exception", None)
    return str(java.getMessage() if java is not None else error)


def _shortened(text: str) -> str:
    text = NOISE.sub("", JAVA_EXCEPTION.sub("", CONDITION.sub("", text)))
    text = " ".join(text.split())
    if len(text) > SENTENCE_LENGTH_MAX:
        text = text[:SENTENCE_LENGTH_MAX].rsplit(" ", 1)[0] + " ..."
    return text if text.endswith((".", "...", "?", "!")) else f"{text or 'Spark refuses this'}."


def _option_word(error: BaseException) -> str:
    """The name of the option, format or column in a sentence of a checker of ours."""
    match = re.search(
        r"(?:option|setting|format|column|encoding|topic) ['\"]?([\w.\-]+)['\"]?", str(error)
    )
    return match[1].rstrip(".").removeprefix("kafka.") if match else ""


def _column(parameters: Parameters) -> str:
    proposals = re.findall(r"`[^`]+`(?:\.`[^`]+`)*", parameters.get("proposal", ""))
    name = last_part(parameters["objectName"])
    if not proposals:
        return f"There is no column {name}."
    near = ", ".join(last_part(proposal) for proposal in proposals)
    return (
        f"There is no column {name}; the nearest {'is' if len(proposals) == 1 else 'are'} {near}."
    )


def _column_among(parameters: Parameters) -> str:
    return f"There is no column {parameters['colName']}; there are: {parameters['fieldNames']}."


def _table(parameters: Parameters) -> str:
    return f"There is no dataset {last_part(parameters['relationName'])}."


def _routine(parameters: Parameters) -> str:
    return f"There is no function {last_part(parameters['routineName'])} in SQL."


def _syntax(parameters: Parameters) -> str:
    # Quotes inside quotes would be hard to read.
    error = parameters["error"].strip()
    if error == "end of input":
        return "The SQL ends too early."
    return f"The SQL is wrong at or near {error}."


def _interval(parameters: Parameters) -> str:
    text = parameters.get("intervalString") or parameters.get("input") or ""
    return f"{text.strip(QUOTES)!r} is not a time span such as '10 seconds'."


def _type(parameters: Parameters) -> str:
    return f"There is no type {parameters['typeName'].strip(QUOTES)}."


def _event_time(parameters: Parameters) -> str:
    return (
        f"A watermark needs a TIMESTAMP, and the column {last_part(parameters['eventName'])} is "
        f"{parameters['eventType'].strip(QUOTES)}."
    )


def _data_source(parameters: Parameters) -> str:
    return f"Spark does not know the format {parameters.get('provider', '').strip(QUOTES)}."


def _not_boolean(parameters: Parameters) -> str:
    return (
        f"The condition {parameters['filter'].strip(QUOTES)} must be true or false, but is "
        f"{parameters['type'].strip(QUOTES)}."
    )


def _ungrouped(parameters: Parameters) -> str:
    return (
        f"{parameters['expression'].strip(QUOTES)} is neither in GROUP BY nor inside an aggregate "
        "function."
    )


def _output_mode(parameters: Parameters) -> str:
    mode, operation = parameters["outputMode"], parameters["operation"]
    if operation == "streaming aggregations without watermark":
        return (
            f"The mode {mode} needs a watermark where a stream is aggregated, on the column of "
            "its window: give the source a watermark, or the flow another mode."
        )
    if operation == "no streaming aggregations":
        return f"The mode {mode} is only for streams that are aggregated."
    return f"The mode {mode} does not work with {operation}."


# Spark's most frequent conditions in our words; its own words stand for all others.
SENTENCES: Mapping[str, Callable[[Parameters], str]] = {
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": _column,
    "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION": _column,
    "UNRESOLVED_COLUMN_AMONG_FIELD_NAMES": _column_among,
    "TABLE_OR_VIEW_NOT_FOUND": _table,
    "UNRESOLVED_ROUTINE": _routine,
    "PARSE_SYNTAX_ERROR": _syntax,
    "CANNOT_PARSE_INTERVAL": _interval,
    "INVALID_INTERVAL_FORMAT.INVALID_UNIT": _interval,
    "UNSUPPORTED_DATATYPE": _type,
    "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE": _event_time,
    "DATA_SOURCE_NOT_FOUND": _data_source,
    "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN": _not_boolean,
    "MISSING_AGGREGATION": _ungrouped,
    "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION": _output_mode,
}
# The parameters of Spark's conditions that hold the wrong word.
WORDS = (
    "objectName",
    "colName",
    "relationName",
    "routineName",
    "typeName",
    "eventName",
    "intervalString",
    "input",
    "functionName",
    "error",
    "name",
    "expression",
    "filter",
)
