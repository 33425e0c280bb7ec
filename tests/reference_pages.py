"""The reference pages that follow from the code: `make docs` writes them.

tests/test_docs.py fails when a page in the repository is not what this makes of the code.
"""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from penstock.broker.doors import monitoring
from penstock.cluster.broker_settings import BROKER_SETTINGS
from penstock.cluster.client_metrics import ATTRIBUTES, CLIENT_METRICS_SETTINGS, REPEATS_MAX
from penstock.cluster.settings import Setting
from penstock.cluster.topic_settings import TOPIC_SETTINGS
from penstock.frontdoor.http import limits as http_limits
from penstock.frontdoor.http import registry
from penstock.frontdoor.http.app import API_ROUTES
from penstock.frontdoor.http.problems import REASONS, status_of
from penstock.frontdoor.http.routes import Route
from penstock.frontdoor.kafka.api import Api
from penstock.frontdoor.kafka.api_table import APIS
from penstock.frontdoor.remote import registry as remote_registry
from penstock.model.errors import Reason
from penstock.observe.families import NODE_FAMILIES, OTHERS, PIPELINE_FAMILIES, Family
from penstock.observe.instruments import LATENCY_BOUNDS
from penstock.observe.node_counters import QUEUES_MAX, TOPICS_MAX
from penstock.registry import decisions as registry_decisions
from penstock.registry import errors as registry_errors
from penstock.registry import json_text
from penstock.registry import schemas as registry_schemas
from penstock.registry import state as registry_state
from penstock.registry.protobuf import parsing as protobuf_parsing
from tests import client_reference, grpc_reference
from tests.documents import ROOT
from tests.sim.core import mutations as core_mutations
from tests.sim.core.test_mutations import DIRECTED as CORE_DIRECTED
from tests.sim.mutation import Mutation
from tests.sim.nodes import lock_mutations, queue_mutations
from tests.sim.nodes import mutations as node_mutations
from tests.sim.nodes.test_door_workers import ALL as DOOR_MUTATIONS
from tests.sim.nodes.test_mutations import DIRECTED as NODES_DIRECTED
from tests.sim.nodes.test_queues import DIRECTED as QUEUES_DIRECTED
from tests.sim.replicas import mutations as replica_mutations
from tests.sim.replicas.test_mutations import DIRECTED as REPLICAS_DIRECTED

REFERENCE = ROOT / "docs" / "reference"
HANDLERS = "penstock.frontdoor.kafka.handlers"

APIS_HEAD = """\
# Kafka APIs

What a node answers on its Kafka listener. It advertises only APIs that work, in the versions that
are listed here. Clients pick the highest version that they also know.

| API | key | versions |
|---|---|---|
"""

SETTINGS_HEAD = """\
# Kafka settings

Topics and brokers have settings by Kafka's names. A topic's are given when it is created or changed
(`penstock topic create`, `penstock topic alter`, or any admin client); a broker's with `--set` at
the start, and those marked *dynamic* also while it runs, or *only* then. A topic that leaves a
setting out gets it from the broker setting in the last column, and from the default if that is not
set either.

Settings *without effect* are accepted and shown, because tools that set them expect to read them
back.
"""

METRICS_HEAD = f"""
## Subscriptions to clients' metrics

A pattern of `match` is a Python regular expression for one of these, and must match all of it:
{", ".join(f"`{name}`" for name in ATTRIBUTES)}.
At most {REPEATS_MAX} parts of a pattern may repeat, and no group may, so that none takes long.

| setting | default | meaning |
|---|---|---|
"""


HTTP_HEAD = """\
# HTTP

What a node answers on its HTTP listener. [Use HTTP](../how-to/use-http.md) shows it by examples.
A running node has all of this, and the shapes of bodies, at `/docs` and `/openapi.json`.
"""

HTTP_TAIL = """
## Problems

Errors are problem documents (RFC 9457) of the type `application/problem+json`: `status`, `title`,
`detail` (a sentence), and `reason` (a word). Every reason of the broker has one status:

| status | reasons |
|---|---|
{statuses}

All others are 400. The door itself adds `no_route` and `method_not_allowed` (404, 405),
`wrong_content_type` (415), `not_acceptable` (406), `json_too_deep` (400), `body_too_large` and
`too_many` (413), `head_too_large` (431), `busy` (503, and 409 for a consumer that another request
polls), `unknown_host` (421) and `foreign_origin`
(403).

## Idempotency keys

A request with the header `Idempotency-Key` can be repeated. Each of its batches gets a producer
id and a sequence that follow from topic, partition and key, so the partition recognises a batch
that it has, as it does for Kafka's idempotent producers. Scope and window follow from that:

- A key belongs to a topic. The same key on another topic is another one.
- It works through every node, and survives restarts and changes of leader, because it lies in the
  log.
- It is kept until the partition forgets the producer: after the broker's setting
  `producer.id.expiration.ms` (a day), or when 100,000 newer producers or keys have written to the
  partition.
- A repeated request must have the same body. One with another number of records is refused with
  409 by each partition that has records of the first one; one with as many other records counts as
  repeated, and nothing of it is written.
- It must also find the same partitions. If some were added to the topic in between, a record that
  does not name its partition may go to another one, and be written there again. If
  `max.message.bytes` was changed in between, records that take several batches are refused with
  409.

## Web pages

A page of any origin can make its visitor's browser send requests to the visitor's own machine.
So:

- An `Origin` other than the door's own address is refused (403), and no answer allows other
  origins (CORS).
- The `Host` must be an address, `localhost`, a name that ends in `.localhost`, or one of
  `--http-hosts` (otherwise 421). A foreign name that resolves to this machine does not get
  through.
- What changes something needs a content type that a form can't send. `text/plain` is one that it
  can, so it is taken only with the header `Penstock-Text` (any value), which a page can't add
  without being asked first.
- Where the browser says that a page of another origin asks (`Sec-Fetch-Site`), the page may only
  link to what shows something. Everything else is refused (403), and so is the stream of a queue's
  events, which leases messages. Browsers say this to addresses of their own machine and over TLS,
  but not over plain HTTP to other machines.

There is no authentication yet. Keep the listener on loopback, which is the default, or in a
network that you trust.

## Limits

| name | value |
|---|---|
{limits}

A client that sends a head or body too slowly, or does not read its answer, is cut off. A body must
be whole after `BODY_S_MAX`, and bring `BYTES_PER_S_MIN` on average in each stretch of
`BODY_PAUSE_S_MAX`; of an answer that waits for its reader, as much must be read in each stretch of
`UNREAD_S_MAX`. Nothing more is read from the topic for a slow reader of a stream; one that was cut
off can come back with `Last-Event-ID`.
"""


REGISTRY_HEAD = """\
# Schema registry

What the registry of a node answers, on its HTTP listener. [Use schemas](../how-to/use-schemas.md)
shows it by examples. Paths, bodies, answers and codes are those of Confluent's registry. Every
node answers for the whole cluster.

Bodies and answers are `application/vnd.schemaregistry.v1+json`; `application/json` is taken too.
Parameters that are not known are ignored.

| request | what it does |
|---|---|
"""

REGISTRY_TAIL = """
## Parameters

| parameter | of | meaning |
|---|---|---|
| `normalize` | registering, looking up, checking | ignore how the schema is written |
| `deleted` | most reads | show what is deleted but kept, too |
| `deletedOnly` | lists of subjects and versions | show only that |
| `permanent` | deleting | for good; it must have been deleted without this first |
| `format` | reads of one schema | `resolved` (Avro), `serialized` (Protobuf: in base64) |
| `fetchMaxId` | a schema by its id | add the highest id |
| `verbose` | checking | say why |
| `subjectPrefix`, `latestOnly` | lists | only these |
| `offset`, `limit` | lists | a part of the list; a negative limit takes all |
| `key`, `value` | `metadata` | the newest version whose metadata has these properties |
| `defaultToGlobal` | level and mode of a subject | the global one if it has none |
| `force` | setting a mode | IMPORT although there are schemas |

## Errors

An error is `{{"error_code": ..., "message": ...}}`. The status is the code, or its first three
digits.

| code | meaning |
|---|---|
{codes}

## Compatibility

| level | who must be able to read what |
|---|---|
| `BACKWARD` (the default) | the new schema what the last version wrote |
| `FORWARD` | the last version what the new schema writes |
| `FULL` | both |
| `..._TRANSITIVE` | the same for all versions |
| `NONE` | nobody anything |

Avro follows the resolution rules of its specification. For JSON Schema, an object that takes
properties which the schema does not name is open: to add a property to it is not `BACKWARD`,
because it may have been there with any type. Protobuf looks at numbers and at types on the wire,
and names do not matter.

## What is different, and what is not served

- There is one context, the default one. A subject in another one (`:.name:...`) is refused with
  42208.
- Associations are refused with 404, and settings of the level other than `compatibility` and
  `normalize` with 422. `metadata` and `ruleSet` of a schema are kept and returned; rules run in
  clients.
- A GUID is made from a schema's content. It is the same on all clusters, but not the one that
  Confluent's registry gives.
- Protobuf is shown as this registry prints it, without comments. Groups and editions are refused.
  Imports other than `google/protobuf/...` must be references.
- Avro is shown as Avro's Java library prints it.
- The description at `/openapi.json` leaves the registry out.

## Limits

| name | value |
|---|---|
{limits}
"""


def schema_registry() -> str:
    rows = [f"| `{each.method} {each.path}` | {each.summary} |" for each in registry.ROUTES]
    names = {value: name for name, value in vars(registry_errors).items() if isinstance(value, int)}
    codes = [f"| {code} | {names[code].lower().replace('_', ' ')} |" for code in sorted(names)]
    limits = {
        "SCHEMA_BYTES_MAX": registry_schemas.SCHEMA_BYTES_MAX,
        "TEXT_LENGTH_MAX (of all schemas)": registry_decisions.TEXT_LENGTH_MAX,
        "TEXT_BYTES_MAX (of Protobuf)": protobuf_parsing.TEXT_BYTES_MAX,
        "NESTING_MAX (of JSON)": json_text.NESTING_MAX,
        "REFERENCES_MAX (of one schema)": registry_decisions.REFERENCES_MAX,
        "REFERENCES_MAX (with all that they use)": registry_state.REFERENCES_MAX,
        "SUBJECT_LENGTH_MAX": registry_decisions.SUBJECT_LENGTH_MAX,
        "CHANGE_S_MAX": remote_registry.CHANGE_S_MAX,
    }
    shown = "\n".join(f"| {name} | {value:,} |" for name, value in limits.items())
    tail = REGISTRY_TAIL.format(codes="\n".join(codes), limits=shown)
    return REGISTRY_HEAD + "\n".join(rows) + "\n" + tail


def http() -> str:
    parts = [HTTP_HEAD, *map(http_route, API_ROUTES)]
    reasons: dict[int, list[str]] = {}
    for reason in Reason:
        if status_of(reason) != 400:
            reasons.setdefault(status_of(reason), []).append(f"`{REASONS[reason]}`")
    statuses = "\n".join(f"| {each} | {', '.join(reasons[each])} |" for each in sorted(reasons))
    named = {name: value for name, value in vars(http_limits).items() if name.isupper()}
    shown = {name: value for name, value in named.items() if name not in ("KIB", "MIB")}
    limits = "\n".join(f"| `{name}` | {value:,} |" for name, value in shown.items())
    return "\n".join(parts) + HTTP_TAIL.format(statuses=statuses, limits=limits)


def http_route(route: Route) -> str:
    lines = [f"\n## {route.method} {route.path}\n", f"{route.summary} {route.help}".rstrip()]
    if route.parameters:
        lines += ["", "| parameter | in | meaning |", "|---|---|---|"]
        lines += [f"| `{each.name}` | {each.place} | {each.help} |" for each in route.parameters]
    if route.bodies:
        kinds = [f"`{each}`" for each in route.bodies if "/" in each]
        lines += ["", f"Bodies: {', '.join(kinds)}."]
    statuses = ", ".join(map(str, sorted({*route.answers, *route.problems})))
    return "\n".join([*lines, "", f"Answers: {statuses}."])


def kafka_apis() -> str:
    apis = sorted(APIS.values(), key=lambda api: api.key)
    rows = [
        f"| {name_of(api)} | {int(api.key)} | {api.versions[0]}-{api.versions[1]} |" for api in apis
    ]
    sections = [f"## {name_of(api)}\n\n{description(api)}\n" for api in apis]
    return APIS_HEAD + "\n".join(rows) + "\n\n" + "\n".join(sections)


def name_of(api: Api) -> str:
    return api.request.__name__.removesuffix("Request")


def description(api: Api) -> str:
    """What the file of an API says at its head."""
    module = importlib.import_module(f"{HANDLERS}.{api.key.name.lower()}")
    text = inspect.getdoc(module)
    assert text, f"{module.__name__} says nothing"
    return text


def kafka_settings() -> str:
    return (
        SETTINGS_HEAD
        + "\n## Topics\n\n| setting | default | meaning | broker setting |\n|---|---|---|---|\n"
        + "".join(topic_row(setting) for setting in ordered(TOPIC_SETTINGS))
        + "\n## Brokers\n\n| setting | default | meaning |\n|---|---|---|\n"
        + "".join(broker_row(setting) for setting in ordered(BROKER_SETTINGS))
        + METRICS_HEAD
        + "".join(broker_row(setting) for setting in ordered(CLIENT_METRICS_SETTINGS))
    )


def ordered(settings: Mapping[str, Setting]) -> list[Setting]:
    return sorted(settings.values(), key=lambda setting: setting.name)


def topic_row(setting: Setting) -> str:
    synonyms = ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms)
    return f"| `{setting.name}` | {default(setting)} | {meaning(setting)} | {synonyms} |\n"


def broker_row(setting: Setting) -> str:
    return f"| `{setting.name}` | {default(setting)} | {meaning(setting)} |\n"


def default(setting: Setting) -> str:
    return f"`{setting.default}`" if setting.default else ""


def meaning(setting: Setting) -> str:
    marks = " *dynamic*" if setting.is_dynamic else ""
    marks = " *only dynamic*" if setting.is_dynamic_only else marks
    marks += "" if setting.has_effect else " *without effect*"
    return setting.documentation.replace("|", "\\|") + marks


MUTATIONS_HEAD = """\
# Mutations

Bugs that somebody could plausibly write. The tests inject each of them, and each must be noticed,
by a directed test or by random runs of the simulator, which stop at the first broken invariant.
What is listed here fails the build when it is not caught.
"""


def mutations() -> str:
    sections = [
        _mutations_of("The consensus core", "core", core_mutations.ALL, CORE_DIRECTED),
        _mutations_of(
            "Replicas on simulated disks and networks",
            "replicas",
            replica_mutations.ALL,
            REPLICAS_DIRECTED,
        ),
        _mutations_of("Whole nodes", "nodes", node_mutations.ALL, NODES_DIRECTED),
        _mutations_of("Queues on whole nodes", "nodes", queue_mutations.ALL, QUEUES_DIRECTED),
        _mutations_of("Locks on whole nodes", "nodes", lock_mutations.ALL),
        _mutations_of("Queues through doors on whole nodes", "nodes", DOOR_MUTATIONS, {}),
    ]
    return MUTATIONS_HEAD + "".join(sections)


def _mutations_of(
    title: str,
    layer: str,
    listed: Iterable[Mutation],
    directed: Mapping[str, Callable[[], None]] = MappingProxyType({}),
) -> str:
    rows = []
    for mutation in listed:
        test = directed.get(mutation.name)
        caught_by = f"random runs of `tests/sim/{layer}`"
        if test is not None:
            caught_by = _named(test)
        rows.append(f"| {mutation.name} | {caught_by} |\n")
    return f"\n## {title}\n\n| mutation | caught by |\n|---|---|\n" + "".join(rows)


def _named(test: Callable[[], None]) -> str:
    """A small function in between only hands arguments to the test it names."""
    if not test.__name__.startswith("test_"):
        module, name = (one for one in test.__code__.co_names if one.startswith("test_"))
        test = getattr(test.__globals__[module], name)
    folder = "/".join(test.__module__.split(".")[:-1])
    return f"{test.__name__} in `{folder}`"


METRICS_PAGE_HEAD = f"""\
# Metrics

What a node shows at `/metrics` on its HTTP listener, and a pipeline on its own port
(`penstock pipeline run --metrics HOST:PORT`). [Watch a
cluster](../how-to/watch-a-cluster.md) shows how to collect and draw it.

The text is Prometheus's format 0.0.4, or OpenMetrics 1.0 if the `Accept` header asks for that.
Counters start at 0 with the process. `penstock up --metrics off` counts nothing.

The number of series is bounded, whatever clients do. {TOPICS_MAX:,} topics and {QUEUES_MAX:,}
queues have counters of their own; all others share the series `{OTHERS}`, so that sums stay right.
Lags are shown for {monitoring.GROUP_SERIES_MAX:,} pairs of group and topic, states for
{monitoring.QUEUE_SERIES_MAX:,} queues, and pushed values for {monitoring.CLIENTS_MAX:,} clients.
`penstock_series_left_out` says how many there are beyond that.

A histogram has buckets up to {", ".join(f"{bound:g}" for bound in LATENCY_BOUNDS)} seconds.
"""


def metrics() -> str:
    return (
        METRICS_PAGE_HEAD
        + _metrics_of("Nodes", NODE_FAMILIES)
        + _metrics_of("Pipelines", PIPELINE_FAMILIES)
    )


def _metrics_of(title: str, families: Iterable[Family]) -> str:
    rows = [
        f"| `{family.name}` | {family.kind} | "
        f"{', '.join(f'`{label}`' for label in family.labels)} | {family.help} |\n"
        for family in families
    ]
    return f"\n## {title}\n\n| name | kind | labels | meaning |\n|---|---|---|---|\n" + "".join(
        rows
    )


PAGES = {
    "grpc.md": grpc_reference.page,
    "http.md": http,
    "metrics.md": metrics,
    "kafka-apis.md": kafka_apis,
    "kafka-settings.md": kafka_settings,
    "mutations.md": mutations,
    "python-client.md": client_reference.page,
    "schema-registry.md": schema_registry,
}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make())
