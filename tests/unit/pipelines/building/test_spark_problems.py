"""Proves that Spark's errors become one sentence with the wrong word, without codes and plans."""

from dataclasses import dataclass, field

from penstock.pipelines.building.spark_problems import (
    last_part,
    position_of,
    problem_of,
    sentence_of,
    word_of,
)
from penstock.pipelines.specification.problems import Place
from penstock.spark.options.errors import OptionError

PLACE = Place("iot.yaml", 4, 5)


@dataclass(eq=False)
class SparkError(Exception):
    """What pyspark's exceptions tell, without a JVM."""

    condition: str = "SOMETHING"
    parameters: dict[str, str] = field(default_factory=dict)
    message: str = ""

    def getCondition(self) -> str:  # noqa: N802
        return self.condition

    def getMessageParameters(self) -> dict[str, str]:  # noqa: N802
        return self.parameters

    def getMessage(self) -> str:  # noqa: N802
        return self.message

    def getQueryContext(self) -> list[object]:  # noqa: N802
        return []

    def __str__(self) -> str:
        return self.message


def test_an_unknown_column_names_those_that_there_are() -> None:
    error = SparkError(
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        {"objectName": "`a`.`temprature`", "proposal": "`a`.`temperature`, `at`"},
    )
    assert sentence_of(error) == "There is no column temprature; the nearest are temperature, at."
    assert word_of(error) == "temprature"


def test_frequent_conditions_are_told_in_our_words() -> None:
    told = {
        "TABLE_OR_VIEW_NOT_FOUND": ({"relationName": "`reading`"}, "There is no dataset reading."),
        "UNRESOLVED_ROUTINE": (
            {"routineName": "`avrg`"},
            "There is no function avrg in SQL.",
        ),
        "PARSE_SYNTAX_ERROR": ({"error": "'FORM'"}, "The SQL is wrong at or near 'FORM'."),
        "CANNOT_PARSE_INTERVAL": (
            {"intervalString": "'1 secnd'"},
            "'1 secnd' is not a time span such as '10 seconds'.",
        ),
        "UNSUPPORTED_DATATYPE": ({"typeName": '"STRNG"'}, "There is no type STRNG."),
        "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION": (
            {"outputMode": "complete", "operation": "no streaming aggregations"},
            "The mode complete is only for streams that are aggregated.",
        ),
    }
    for condition, (parameters, sentence) in told.items():
        assert sentence_of(SparkError(condition, parameters)) == sentence


def test_other_conditions_lose_their_codes_plans_and_stacks() -> None:
    noisy = (
        "[DATATYPE_MISMATCH.BINARY_OP_WRONG_TYPE] Cannot resolve\n it. SQLSTATE: 42K09; line 1 pos "
        "7;\n'Project [x]\n+- Relation"
    )
    assert sentence_of(SparkError("DATATYPE_MISMATCH", {}, noisy)) == "Cannot resolve it."
    stacked = "java.lang.IllegalStateException: too late\n\tat org.apache.Thing.run(Thing.scala:1)"
    assert sentence_of(RuntimeError(stacked)) == "too late."


def test_a_long_sentence_is_cut() -> None:
    assert len(sentence_of(RuntimeError("word " * 1000))) < 410


def test_the_position_is_read_from_a_syntax_error() -> None:
    error = SparkError(message="Syntax error at or near 'x'. (line 2, pos 19)\n\n== SQL ==\n")
    assert position_of(error) == (2, 19)
    assert position_of(SparkError(message="nothing")) is None


def test_a_refused_option_keeps_its_sentence_and_its_place() -> None:
    problem = problem_of(OptionError("There is no option subscrib."), PLACE)
    assert (problem.place, problem.sentence) == (PLACE, "There is no option subscrib.")
    assert word_of(OptionError("The option kafka.acks must be all.")) == "acks"


def test_names_are_taken_out_of_sparks_quotes() -> None:
    assert last_part("`spark_catalog`.`a``b`") == "a`b"
    assert last_part("'FORM'") == "FORM"
