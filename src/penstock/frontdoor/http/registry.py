"""The schema registry over HTTP, at Confluent's paths and with its answers and errors.

A handler reads parameters and asks `remote/registry.py`; `penstock.registry` decides. Both are
imported when the first of these routes is used.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.requests import JSON_TYPE, Answer, Request, decode_json
from penstock.frontdoor.http.routes import Route

if TYPE_CHECKING:
    from penstock.frontdoor.remote.registry import Registry
    from penstock.registry.state import State

REGISTRY_TYPE: Final = "application/vnd.schemaregistry.v1+json"
TYPES: Final = (REGISTRY_TYPE, "application/vnd.schemaregistry+json", JSON_TYPE)
_BODIES: Final = dict.fromkeys(TYPES)
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_ENCODER: Final = msgspec.json.Encoder()
_TRUE: Final = ("true", "1", "yes", "")
# What a passing state of the cluster is called by those who know this API's codes.
_STORE_FAILED: Final = 50001
_TIMED_OUT: Final = 50002

Handler = Callable[[Context, Request], Awaitable[Any]]


def show_problem(problem: Problem) -> Answer:
    """The door's own refusals, in this API's form."""
    code = {503: _STORE_FAILED, 504: _TIMED_OUT}.get(problem.status, problem.status)
    answer = _error(problem.status, code, problem.detail)
    answer.headers = problem.headers
    return answer


def _error(status: int, code: int, message: str) -> Answer:
    body = _ENCODER.encode({"error_code": code, "message": message})
    return Answer(status, body, REGISTRY_TYPE)


def _answering(handler: Handler) -> Callable[[Context, Request], Awaitable[Answer]]:
    """The handler with its outcome as an answer."""

    async def answer(context: Context, request: Request) -> Answer:
        from penstock.registry.errors import RegistryError

        try:
            content = await handler(context, request)
        except RegistryError as refused:
            return _error(refused.status, refused.code, refused.message)
        return Answer(200, _ENCODER.encode(content), REGISTRY_TYPE)

    answer.__name__ = handler.__name__
    return answer


def _registry(context: Context) -> "Registry":
    if context.registry is None:
        from penstock.frontdoor.remote.registry import Registry

        context.registry = Registry(context.broker, context.topics, context.reader, context.now_ms)
    return context.registry


# Parameters


def _flag(request: Request, name: str) -> bool:
    """As Java reads them: `True` is true, and anything else is not."""
    given = request.text(name)
    return given is not None and given.lower() in _TRUE


def _page(request: Request, found: list[Any]) -> list[Any]:
    from penstock.registry.answers import page

    offset = request.number("offset", 0, _INT_MIN, _INT_MAX)
    return page(found, offset, request.number("limit", -1, _INT_MIN, _INT_MAX))


def _form(request: Request) -> str:
    return request.text("format", "") or ""


def _subject(request: Request) -> str:
    """Without the prefix that names the default context."""
    return request.parameters["subject"].removeprefix(":.:")


async def _body(request: Request, shape: type[Any]) -> Any:
    try:
        return decode_json(msgspec.json.Decoder(shape), await request.body())
    except Problem as problem:
        # Well-formed or not: what can't be understood has this status here.
        problem.status = 422 if problem.status == 400 else problem.status
        raise


async def _schema(request: Request) -> Any:
    from penstock.registry.decisions import Request as SchemaRequest

    return await _body(request, SchemaRequest)


# Schemas


async def get_schema(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    schema_id, max_id = request.parameters["id"], _flag(request, "fetchMaxId")
    registry, form = _registry(context), _form(request)
    # What an id stands for never changes, so an answer from the copy is right; but an id that is
    # not in it may be new.
    is_number = schema_id.isascii() and schema_id.isdigit()
    is_known = is_number and registry.state.find_id(int(schema_id[:12])) is not None
    return await registry.work_out(
        lambda state: answers.schema_by_id(state, schema_id, form=form, max_id=max_id),
        fresh=max_id or not is_known,
    )


async def get_schema_text(context: Context, request: Request) -> Any:
    document = await get_schema(context, request)
    return msgspec.Raw(document["schema"].encode())


async def get_schema_by_guid(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    guid, form = request.parameters["guid"], _form(request)
    return await _registry(context).work_out(
        lambda state: answers.schema_by_guid(state, guid, form=form)
    )


async def get_subjects_of_schema(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    found = await _registry(context).ask(
        lambda state: answers.subjects_of_id(
            state,
            request.parameters["id"],
            deleted=_flag(request, "deleted"),
            subject=request.text("subject"),
        )
    )
    return _page(request, found)


async def get_versions_of_schema(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    found = await _registry(context).ask(
        lambda state: answers.versions_of_id(
            state,
            request.parameters["id"],
            deleted=_flag(request, "deleted"),
            subject=request.text("subject"),
        )
    )
    return _page(request, found)


async def get_types(_: Context, __: Request) -> Any:
    from penstock.registry.schemas import TYPES as KINDS

    return KINDS


async def list_schemas(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    found = await _registry(context).ask(
        lambda state: list(
            answers.all_schemas(
                state,
                prefix=request.text("subjectPrefix", "") or "",
                deleted=_flag(request, "deleted"),
                latest_only=_flag(request, "latestOnly"),
            )
        )
    )
    return _page(request, found)


async def list_contexts(_: Context, request: Request) -> Any:
    from penstock.registry.answers import CONTEXT

    return _page(request, [CONTEXT])


# Subjects


async def list_subjects(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    found = await _registry(context).ask(
        lambda state: answers.subjects(
            state,
            prefix=request.text("subjectPrefix", "") or "",
            deleted=_flag(request, "deleted"),
            deleted_only=_flag(request, "deletedOnly"),
        )
    )
    return _page(request, found)


async def look_up_schema(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    body = await _schema(request)
    return await _registry(context).work_out(
        lambda state: answers.lookup(
            state,
            _subject(request),
            body,
            normalize=_flag(request, "normalize"),
            deleted=_flag(request, "deleted"),
            form=_form(request),
        )
    )


async def delete_subject(context: Context, request: Request) -> Any:
    from penstock.registry import decisions

    permanent = _flag(request, "permanent")
    return await _registry(context).change(
        lambda state: decisions.delete_subject(state, _subject(request), permanent=permanent)
    )


async def list_versions(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    found = await _registry(context).ask(
        lambda state: answers.numbers(
            state,
            _subject(request),
            deleted=_flag(request, "deleted"),
            deleted_only=_flag(request, "deletedOnly"),
        )
    )
    return _page(request, found)


async def register_schema(context: Context, request: Request) -> Any:
    from penstock.registry import decisions

    body = await _schema(request)
    return await _registry(context).change(
        lambda state: decisions.register(
            state, _subject(request), body, normalize=_flag(request, "normalize")
        )
    )


async def get_version(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    return await _registry(context).work_out(
        lambda state: answers.version(
            state,
            _subject(request),
            request.parameters["version"],
            deleted=_flag(request, "deleted"),
            form=_form(request),
        )
    )


async def get_version_text(context: Context, request: Request) -> Any:
    document = await get_version(context, request)
    return msgspec.Raw(document["schema"].encode())


async def delete_version(context: Context, request: Request) -> Any:
    from penstock.registry import decisions

    number, permanent = request.parameters["version"], _flag(request, "permanent")
    return await _registry(context).change(
        lambda state: decisions.delete_version(
            state, _subject(request), number, permanent=permanent
        )
    )


async def get_referring_schemas(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    found = await _registry(context).ask(
        lambda state: answers.referenced_by(
            state,
            _subject(request),
            request.parameters["version"],
            deleted=_flag(request, "deleted"),
        )
    )
    return _page(request, found)


async def get_version_with_metadata(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    names, values = request.query.get("key", []), request.query.get("value", [])
    if not names or len(names) != len(values):
        raise Problem(422, "Give as many parameters 'value' as 'key', at least one of each.")
    return await _registry(context).work_out(
        lambda state: answers.version_with_metadata(
            state,
            _subject(request),
            dict(zip(names, values, strict=True)),
            deleted=_flag(request, "deleted"),
            form=_form(request),
        )
    )


# Compatibility


async def check_schema(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    body = await _schema(request)
    return await _registry(context).work_out(
        lambda state: answers.check(
            state,
            _subject(request),
            request.parameters.get("version"),
            body,
            normalize=_flag(request, "normalize"),
            verbose=_flag(request, "verbose"),
        )
    )


# Settings


def _place(request: Request) -> str | None:
    return _subject(request) if "subject" in request.parameters else None


async def get_config(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    default = _flag(request, "defaultToGlobal")

    def answer(state: "State") -> Any:
        return answers.config(state, _place(request), default_to_global=default)

    return await _registry(context).ask(answer)


async def set_config(context: Context, request: Request) -> Any:
    from penstock.registry import decisions

    body = await _body(request, decisions.Config)
    return await _registry(context).change(
        lambda state: decisions.set_config(state, _place(request), body)
    )


async def delete_config(context: Context, request: Request) -> Any:
    from penstock.registry import decisions

    return await _registry(context).change(
        lambda state: decisions.delete_config(state, _place(request))
    )


async def get_mode(context: Context, request: Request) -> Any:
    from penstock.registry import answers

    default = _flag(request, "defaultToGlobal")

    def answer(state: "State") -> Any:
        return answers.mode(state, _place(request), default_to_global=default)

    return await _registry(context).ask(answer)


class ModeBody(msgspec.Struct):
    mode: str


async def set_mode(context: Context, request: Request) -> Any:
    from penstock.registry import decisions

    body = await _body(request, ModeBody)
    force = _flag(request, "force")
    return await _registry(context).change(
        lambda state: decisions.set_mode(state, _place(request), body.mode, force=force)
    )


async def delete_mode(context: Context, request: Request) -> Any:
    from penstock.registry import decisions

    return await _registry(context).change(
        lambda state: decisions.delete_mode(state, _place(request))
    )


async def refuse_associations(_: Context, __: Request) -> Any:
    from penstock.registry.errors import RegistryError

    raise RegistryError(404, "This registry has no associations: subjects follow from topics.")


def _route(method: str, path: str, handler: Handler, summary: str) -> Route:
    return Route(
        method=method,
        path=path,
        handler=_answering(handler),
        summary=summary,
        bodies=_BODIES if method in ("POST", "PUT") else {},
        answer_types=(REGISTRY_TYPE,),
        show_problem=show_problem,
        ignores_parameters=True,
    )


_VERSIONS: Final = "/subjects/{subject}/versions"
_VERSION: Final = "/subjects/{subject}/versions/{version}"
_CHECK: Final = "/compatibility/subjects/{subject}/versions"
_RESOURCE: Final = "/associations/resources/{resource}"

ROUTES: Final = (
    _route("GET", "/schemas", list_schemas, "List schemas with their subjects and versions."),
    _route("GET", "/schemas/types", get_types, "List the types of schemas."),
    _route("GET", "/schemas/ids/{id}", get_schema, "Get a schema by its id."),
    _route("GET", "/schemas/ids/{id}/schema", get_schema_text, "Get only the text of a schema."),
    _route(
        "GET", "/schemas/ids/{id}/subjects", get_subjects_of_schema, "List subjects that use an id."
    ),
    _route(
        "GET",
        "/schemas/ids/{id}/versions",
        get_versions_of_schema,
        "List versions that have an id.",
    ),
    _route("GET", "/schemas/guids/{guid}", get_schema_by_guid, "Get a schema by its GUID."),
    _route("GET", "/contexts", list_contexts, "List contexts: there is one."),
    _route("GET", "/subjects", list_subjects, "List subjects."),
    _route("POST", "/subjects/{subject}", look_up_schema, "Find the version of a schema."),
    _route("DELETE", "/subjects/{subject}", delete_subject, "Delete all versions."),
    _route("GET", "/subjects/{subject}/metadata", get_version_with_metadata, "By its metadata."),
    _route("GET", _VERSIONS, list_versions, "List the versions of a subject."),
    _route("POST", _VERSIONS, register_schema, "Register a schema."),
    _route("GET", _VERSION, get_version, "Get a version."),
    _route("DELETE", _VERSION, delete_version, "Delete a version."),
    _route("GET", f"{_VERSION}/schema", get_version_text, "Get only the text of a schema."),
    _route(
        "GET",
        f"{_VERSION}/referencedby",
        get_referring_schemas,
        "List ids of schemas that refer to it.",
    ),
    _route("POST", _CHECK, check_schema, "Check a schema against a subject."),
    _route("POST", f"{_CHECK}/{{version}}", check_schema, "Check it against a version."),
    _route("GET", "/config", get_config, "Show the compatibility level."),
    _route("PUT", "/config", set_config, "Set the compatibility level."),
    _route("DELETE", "/config", delete_config, "Go back to BACKWARD."),
    _route("GET", "/config/{subject}", get_config, "Show the level of a subject."),
    _route("PUT", "/config/{subject}", set_config, "Set the level of a subject."),
    _route("DELETE", "/config/{subject}", delete_config, "Let it follow the global one."),
    _route("GET", "/mode", get_mode, "Show the mode."),
    _route("PUT", "/mode", set_mode, "Set the mode."),
    _route("DELETE", "/mode", delete_mode, "Go back to READWRITE."),
    _route("GET", "/mode/{subject}", get_mode, "Show the mode of a subject."),
    _route("PUT", "/mode/{subject}", set_mode, "Set the mode of a subject."),
    _route("DELETE", "/mode/{subject}", delete_mode, "Let it follow the global one."),
    _route("POST", "/associations", refuse_associations, "Not served."),
    _route("PUT", "/associations", refuse_associations, "Not served."),
    _route("DELETE", _RESOURCE, refuse_associations, "Not served."),
    _route("GET", f"{_RESOURCE}/{{name}}", refuse_associations, "Not served."),
)
