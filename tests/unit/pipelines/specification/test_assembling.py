"""The parts of a pipeline are checked against each other and brought into order."""

from pathlib import Path

import pytest

from penstock.pipelines.specification.assembling import assemble
from penstock.pipelines.specification.model import (
    Flow,
    LakeFormat,
    LakeSink,
    Sink,
    SqlStep,
    Step,
    TableSource,
    TopicSink,
    TopicSource,
)
from penstock.pipelines.specification.ordering import cycles_of, ordered
from penstock.pipelines.specification.problems import Place, SpecificationRefused

PLACE = Place("iot.yaml", 1, 1)
FILE = "/folder/iot.yaml"


def topic(name: str, **options: str) -> TopicSource:
    return TopicSource(name=name, options=options or {"subscribe": name}, place=PLACE)


def step(name: str, *inputs: str) -> SqlStep:
    return SqlStep(name=name, sql="", sql_place=PLACE, inputs=inputs, place=PLACE)


def flow(name: str, source: str, to: Sink | str) -> Flow:
    sink = TopicSink(options={"topic": to}, place=PLACE) if isinstance(to, str) else to
    return Flow(name=name, input=source, sink=sink, place=PLACE)


def refusals(steps: list[Step]) -> list[str]:
    with pytest.raises(SpecificationRefused) as refused:
        assemble(
            name="iot",
            file=FILE,
            storage=None,
            parameters={},
            sources=[topic("a")],
            steps=steps,
            flows=[flow("out", "a", "out")],
            place=PLACE,
        )
    return [problem.sentence for problem in refused.value.problems]


def test_steps_come_after_their_inputs_and_otherwise_stay_in_order() -> None:
    pipeline = assemble(
        name="iot",
        file=FILE,
        storage=None,
        parameters={},
        sources=[topic("a")],
        steps=[step("last", "MIDDLE", "a"), step("other", "a"), step("Middle", "A")],
        flows=[flow("out", "last", "out")],
        place=PLACE,
    )
    assert list(pipeline.steps) == ["Middle", "last", "other"]
    assert pipeline.steps["last"].inputs == ("Middle", "a")
    assert pipeline.storage == "/folder/.penstock/pipelines/iot"


def test_a_relative_storage_is_beside_the_file() -> None:
    pipeline = assemble(
        name="iot",
        file="iot.yaml",
        storage="state",
        parameters={},
        sources=[topic("a")],
        steps=[],
        flows=[flow("out", "a", "out")],
        place=PLACE,
    )
    assert pipeline.storage == str(Path.cwd() / "state")


def test_flows_come_after_those_that_write_what_they_read() -> None:
    table = LakeSink(format=LakeFormat.DELTA, path="/lake/a", place=PLACE)
    pipeline = assemble(
        name="iot",
        file=FILE,
        storage=None,
        parameters={},
        sources=[
            topic("alerts", subscribe="x, alerts"),
            topic("matching", subscribePattern="al.*"),
            topic("readings"),
            TableSource(
                name="table", format=LakeFormat.DELTA, path="/lake/a", is_stream=True, place=PLACE
            ),
        ],
        steps=[step("found", "matching")],
        flows=[
            flow("from_table", "table", "a"),
            flow("from_topic", "alerts", "b"),
            flow("from_pattern", "found", "c"),
            flow("to_topic", "readings", "alerts"),
            flow("to_table", "readings", table),
        ],
        place=PLACE,
    )
    assert list(pipeline.flows) == [
        "to_table",
        "from_table",
        "to_topic",
        "from_topic",
        "from_pattern",
    ]


def test_a_flow_that_feeds_itself_is_no_obstacle() -> None:
    pipeline = assemble(
        name="iot",
        file=FILE,
        storage=None,
        parameters={},
        sources=[topic("a"), topic("b")],
        steps=[],
        flows=[flow("there", "a", "b"), flow("back", "b", "a"), flow("again", "a", "a")],
        place=PLACE,
    )
    assert sorted(pipeline.flows) == ["again", "back", "there"]


def test_cycles_are_named_step_by_step() -> None:
    assert refusals([step("b", "c"), step("c", "d"), step("d", "b", "a"), step("e", "b")]) == [
        "The steps b, c, d and b depend on each other."
    ]
    assert refusals([step("b", "b")]) == ["The step b depends on itself."]


def test_a_name_that_belongs_to_rows_beside_a_dataset_is_taken() -> None:
    from penstock.pipelines.specification.model import Action, Rule

    rule = Rule(name="r", condition="x", action=Action.ROUTE, place=PLACE)
    routing = SqlStep(name="b", sql="", sql_place=PLACE, inputs=("a",), rules=(rule,), place=PLACE)
    assert refusals([routing, step("b_rejected", "a")]) == [
        "The name b_rejected belongs to the rows that b sorts out; give the step another one."
    ]


def test_orders_and_cycles_of_long_chains() -> None:
    """Without running out of Python's stack."""
    chain = {str(number): [str(number + 1)] for number in range(5000)} | {"5000": []}
    assert ordered(chain)[0] == "5000"
    assert cycles_of({"a": ["b"], "b": ["a"], "c": ["a"], "d": ["d"]}) == [
        ["a", "b", "a"],
        ["d", "d"],
    ]
