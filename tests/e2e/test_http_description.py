"""Proves that the door does what its OpenAPI description says, for requests made at random from it.

Whatever is sent, the answer is described: its status, its type and its shape. None is a server
error.
"""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.e2e.conftest import MakeBroker
from tests.e2e.processes import Broker

WAIT_S = 60.0
# Of each route; wrong requests take long to make.
EXAMPLES = {
    schemathesis.GenerationMode.POSITIVE: 10,
    schemathesis.GenerationMode.NEGATIVE: 3,
}
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
# A stream has no end, so that a client of this kind would wait for ever.
STREAMS = "/events"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of its own: the requests change settings of the node, and make topics of any name."""
    made = Broker(tmp_path_factory.mktemp("described") / "data").start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def operations(broker: Broker) -> list[Any]:
    document = httpx.get(f"http://{broker.http}/openapi.json", timeout=WAIT_S).json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=f"http://{broker.http}")
    return [
        each.ok() for each in schema.get_all_operations() if not each.ok().path.endswith(STREAMS)
    ]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
)
def test_random_requests_get_described_answers(operations: list[Any], mode: Any) -> None:
    tried = 0

    def check(operation: Any) -> int:
        count = 0

        @settings(
            max_examples=EXAMPLES[mode],
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.data())
        def once(data: st.DataObject) -> None:
            nonlocal count
            case = data.draw(operation.as_strategy(generation_mode=mode))
            # What may wait for records would, each time.
            for part in (case.query, case.body):
                if isinstance(part, dict) and isinstance(part.get("wait_ms"), int):
                    part["wait_ms"] = 0
            case.validate_response(case.call(timeout=WAIT_S), checks=CHECKS)
            count += 1

        once()
        return count

    for operation in operations:
        try:
            tried += check(operation)
        except (schemathesis.errors.InvalidSchema, Unsatisfiable):
            # A route without parameters and body has nothing that could be wrong.
            assert mode is schemathesis.GenerationMode.NEGATIVE
    assert tried >= 15


def test_a_broker_survives_it(make_broker: MakeBroker, broker: Broker) -> None:
    assert httpx.get(f"http://{broker.http}/health/ready", timeout=WAIT_S).status_code == 200
    assert "Traceback" not in broker.stderr()
