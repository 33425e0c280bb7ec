"""What is wrong in a Python file is told with its line, and all of it at once."""

from pathlib import Path

import pytest

from penstock.pipelines.specification.problems import SpecificationRefused
from tests.unit.pipelines.declaring.files import SMALLEST, declared


def problems(folder: Path, text: str, **more: dict[str, str]) -> list[str]:
    with pytest.raises(SpecificationRefused) as refused:
        declared(folder, text, **more)  # type: ignore[arg-type]
    return [str(problem).removeprefix(f"{folder}/") for problem in refused.value.problems]


# The line that is put after the smallest pipeline is line 7.
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'dp.create_source("rooms", topik="x")',
            "iot.py:7: The key topik is unknown in the source rooms; the nearest is topic.",
        ),
        (
            'dp.create_sink("out", "penstok", {})',
            "iot.py:7: The format penstok of the sink out is unknown; the nearest is penstock.",
        ),
        (
            'dp.create_streaming_table("out", format="deltas")',
            "iot.py:7: The format deltas of the table out is unknown; the nearest is delta.",
        ),
        (
            'dp.create_streaming_table("out", cluster_by=["a"])',
            "iot.py:7: cluster_by can't be given for the table out: give partition_cols.",
        ),
        (
            'dp.create_sink("screen", "console")',
            "iot.py:7: The sink screen is declared twice.",
        ),
        (
            'dp.append_flow(target="scren")(shown)',
            "iot.py:7: There is no sink scren, which the flow shown targets; "
            "the nearest is screen.",
        ),
        (
            "@dp.temporary_view\ndef x(reading): ...",
            "iot.py:7: There is no dataset reading, which the step x takes; "
            "the nearest is readings.",
        ),
        (
            "@dp.temporary_view\ndef x(*readings): ...",
            "iot.py:7: The function x must take readings by its name, without *, ** and /: "
            "its parameters are the datasets that it takes.",
        ),
        (
            "@dp.temporary_view\nasync def x(readings): ...",
            "iot.py:7: The function x is async, which a pipeline can't call.",
        ),
        (
            "dp.temporary_view(5)",
            "iot.py:7: This can only decorate a function, not 5.",
        ),
        (
            '@dp.temporary_view(rules={"r": ("a", "drp")})\ndef x(readings): ...',
            "iot.py:7: The key action in the rule r of the step x must be keep, drop, route or "
            'fail, not "drp".',
        ),
        (
            '@dp.table(every="often")\ndef x(readings): ...',
            "iot.py:7: The key every in the flow x must be a time such as 10 seconds or "
            '5 minutes, not "often".',
        ),
        (
            "@dp.materialized_view\ndef x(readings): ...",
            "iot.py:7: materialized_view is not supported: declare a table that grows with table.",
        ),
        (
            "@dp.materialized_view(name='y')\ndef x(readings): ...",
            "iot.py:7: materialized_view is not supported: declare a table that grows with table.",
        ),
        (
            "dp.create_auto_cdc_flow(target='x')",
            "iot.py:7: create_auto_cdc_flow is not supported: "
            "flows only append; merge in a sink of the format function.",
        ),
        (
            'dp.parameter("secret")',
            "iot.py:7: The parameter secret has no value: "
            "give -p secret=VALUE or set PENSTOCK_SECRET.",
        ),
        (
            'dp.parameter("a", default=1); dp.parameter("a", default=2)',
            "iot.py:7: The parameter a is declared twice.",
        ),
        (
            'dp.test("t", given={"readings": "x"}, expect={})',
            "iot.py:7: In the test 't', readings must be a list of rows, "
            "each a mapping of columns to values.",
        ),
        (
            'dp.test("t", given={"reading": []}, expect={"shwn": []})',
            'iot.py:7: There is no source reading, which the test "t" gives; '
            "the nearest is readings.",
        ),
        ("1 / 0", "iot.py:7:1: ZeroDivisionError: division by zero."),
        ("def", "iot.py:7:4: The Python code is wrong: invalid syntax."),
        ("import sys; sys.exit(3)", "iot.py: The file ends the Python process (3)."),
        (
            'dp.create_sink("out")',
            "iot.py:7:1: TypeError: create_sink() missing 1 required positional argument: "
            "'format'.",
        ),
    ],
)
def test_a_problem_names_its_line(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in problems(tmp_path, f"{SMALLEST}{text}\n")


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
    dp.create_source("readings", topc="readings")
    dp.create_sink("out", "penstok")
    @dp.append_flow(target="out")
    def a(readings, rooms): ...
    @dp.append_flow(target="other")
    def b(readings): ...
    """
    found = problems(tmp_path, text, given={"speed": "1"})
    assert [problem.split(" ")[0] for problem in found] == [
        "iot.py:",
        "iot.py:2:",
        "iot.py:3:",
        "iot.py:4:",
        "iot.py:6:",
    ]
    assert found[0] == "iot.py: There is no parameter speed."
    # What reads the source that is wrong is not wrong for that.
    assert "There is no dataset rooms" in found[3]


def test_a_failing_neighbour_is_named_with_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("x = 1\ny = x.z\n")
    found = problems(tmp_path, f"{SMALLEST}import beside\n")
    assert found == ["beside.py:2:5: AttributeError: 'int' object has no attribute 'z'."]


def test_a_file_that_declares_nothing_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, "") == [
        "iot.py: The file declares no source: use create_source.",
        "iot.py: The file declares no flow: use table or append_flow.",
    ]


def test_the_pipeline_is_described_once(tmp_path: Path) -> None:
    text = f'{SMALLEST}dp.pipeline("a")\ndp.pipeline("b")\n'
    (found,) = problems(tmp_path, text)
    assert found == f"iot.py:8: The pipeline is already described, in {tmp_path}/iot.py:7."


def test_words_outside_of_a_loaded_file_say_how_to_run_it() -> None:
    from penstock import pipelines as dp

    with pytest.raises(
        SpecificationRefused, match=r"use penstock pipeline run .*test_problems\.py"
    ):
        dp.create_source("readings", topic="x")
