"""Proves that the door does what its OpenAPI description says, for requests made at random from it.

Whatever is sent, the answer is described: its status, its type and its shape. None is a server
error.
"""

import itertools
import os
import time
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
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
# Of each route in each round; wrong requests take long to make.
EXAMPLES = {
    schemathesis.GenerationMode.POSITIVE: 10,
    schemathesis.GenerationMode.NEGATIVE: 3,
}
# There is one round at least, and more while there is time. Each has a seed of its own: the first
# one that is given, and then the next ones.
SEED = int(os.environ.get("SEED", "1"))
SECONDS = float(os.environ.get("DESCRIPTION_SECONDS", "10"))
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


@pytest.mark.timeout(180 + SECONDS)
@pytest.mark.parametrize(
    "mode",
    [
        schemathesis.GenerationMode.POSITIVE,
        pytest.param(schemathesis.GenerationMode.NEGATIVE, marks=pytest.mark.slow),
    ],
)
def test_random_requests_get_described_answers(operations: list[Any], mode: Any) -> None:
    tried = 0
    deadline = time.monotonic() + SECONDS
    with requests.Session() as session:
        for number in itertools.count(SEED):
            for operation in operations:
                if number > SEED and time.monotonic() > deadline:
                    break
                tried += checked(operation, mode, number, session)
            if time.monotonic() > deadline:
                break
    assert tried >= 15


def checked(operation: Any, mode: Any, number: int, session: requests.Session) -> int:
    """How many requests of one route were answered as they should be."""
    count = 0

    @seed(number)
    @settings(
        max_examples=EXAMPLES[mode],
        deadline=None,
        database=None,
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
        case.validate_response(case.call(timeout=WAIT_S, session=session), checks=CHECKS)
        count += 1

    try:
        once()
    except (schemathesis.errors.InvalidSchema, Unsatisfiable):
        # A route without parameters and body has nothing that could be wrong.
        assert mode is schemathesis.GenerationMode.NEGATIVE
    except Exception as failure:
        failure.add_note(f"SEED={number} shows it again")
        raise
    return count


def test_a_broker_survives_it(make_broker: MakeBroker, broker: Broker) -> None:
    assert httpx.get(f"http://{broker.http}/health/ready", timeout=WAIT_S).status_code == 200
    assert "Traceback" not in broker.stderr()
