"""How a message is declared: one class per struct, one field per attribute, all versions at once.

A declaration only records what it is told. Its constructor, its decoders and its encoders are
made when first needed, so that importing all messages stays cheap.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast, dataclass_transform
from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey

T = TypeVar("T")

VERSION_LAST: Final = 0x7FFF
ZERO_UUID: Final = UUID(int=0)


class VersionRange:
    """The versions "3+", "0-12" or "1"; both ends are included."""

    __slots__ = ("first", "last")

    def __init__(self, text: str) -> None:
        first, separator, last = text.partition("-")
        if text.endswith("+"):
            self.first, self.last = int(text[:-1]), VERSION_LAST
        else:
            self.first = int(first)
            self.last = int(last) if separator else self.first

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __repr__(self) -> str:
        return f"{self.first}-{self.last}"


class Field:
    """One declared field: what it is, in which versions it exists, and its value elsewhere."""

    __slots__ = ("default", "element", "kind", "name", "nullable", "tag", "versions")

    def __init__(
        self,
        kind: "Kind",
        versions: str,
        default: object,
        nullable: str | None,
        tag: int | None,
        element: Any = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = versions
        self.default = default
        self.nullable = nullable
        self.tag = tag
        # The struct class of a nested field; the struct class or the kind of an array's elements.
        self.element = element

    def exists_in(self, version: int) -> bool:
        return version in VersionRange(self.versions)

    def nullable_in(self, version: int) -> bool:
        return self.nullable is not None and version in VersionRange(self.nullable)


class Kind:
    """A wire type. Calling it declares a field of that type; `array` takes it as an element.

    The call returns Any, so that a type checker sees an attribute with a default value.
    """

    __slots__ = ("default", "format", "name", "size")

    def __init__(self, name: str, default: object, format: str = "", size: int = 0) -> None:  # noqa: A002
        self.name = name
        self.default = default
        # The code and width in the struct module for kinds of a fixed width, else "" and 0.
        self.format = format
        self.size = size

    def __call__(
        self,
        versions: str,
        *,
        default: object = ...,
        nullable: str | None = None,
        tag: int | None = None,
    ) -> Any:
        chosen = self.default if default is ... else default
        return Field(self, versions, chosen, nullable, tag)

    def __repr__(self) -> str:
        return self.name


int8: Final = Kind("int8", 0, "b", 1)
int16: Final = Kind("int16", 0, "h", 2)
int32: Final = Kind("int32", 0, "i", 4)
int64: Final = Kind("int64", 0, "q", 8)
uint16: Final = Kind("uint16", 0, "H", 2)
uint32: Final = Kind("uint32", 0, "I", 4)
float64: Final = Kind("float64", 0.0, "d", 8)
boolean: Final = Kind("boolean", False, "?", 1)
uuid: Final = Kind("uuid", ZERO_UUID, "16s", 16)
string: Final = Kind("string", "")
bytes_: Final = Kind("bytes", b"")
# Like bytes, but decoded to a view of the frame: record batches are never copied.
records: Final = Kind("records", None)
ARRAY: Final = Kind("array", ...)
NESTED: Final = Kind("nested", None)


def array(
    element: Any,
    versions: str,
    *,
    default: object = ...,
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    """A list of structs or of one kind; empty by default."""
    return Field(ARRAY, versions, default, nullable, tag, element)


def nested(
    struct_class: type, versions: str, *, nullable: str | None = None, tag: int | None = None
) -> Any:
    """A struct inside a struct. It is None when absent: null on the wire, or its tag not sent."""
    return Field(NESTED, versions, None, nullable, tag, struct_class)


class Schema:
    """What the codec needs to know of a struct class, and the codecs compiled for it so far."""

    __slots__ = ("api_key", "decoders", "encoders", "fields", "flexible_from", "name", "versions")

    def __init__(self, name: str, fields: tuple[Field, ...]) -> None:
        self.name = name
        self.fields = fields
        # The rest is of top-level messages only; a nested struct follows its message.
        self.api_key: ApiKey | None = None
        self.versions = (0, -1)
        self.flexible_from = VERSION_LAST + 1
        self.decoders: dict[int, Callable[..., Any]] = {}
        self.encoders: dict[int, Callable[..., Any]] = {}


class Struct:
    """What every declared class can do: be built by keyword, compared and printed."""

    __slots__ = ()
    __schema__: Schema

    def __init__(self, **values: object) -> None:
        # The first instance of a class pays for the compilation of its real constructor.
        struct_class = type(self)
        initialise = _compile_constructor(struct_class.__schema__)
        struct_class.__init__ = initialise  # type: ignore[method-assign]
        initialise(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = (field.name for field in self.__schema__.fields)
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = (field.name for field in self.__schema__.fields)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__schema__.name}({values})"


@dataclass_transform(kw_only_default=True)
def struct(declared: type[T]) -> type[T]:
    """Makes a nested struct of a class whose attributes are declared fields."""
    return _build(declared)


@dataclass_transform(kw_only_default=True)
def message(
    api_key: ApiKey, *, versions: str, flexible: str | None
) -> Callable[[type[T]], type[T]]:
    """Makes a request or response; from its first flexible version on, lengths are compact."""

    def decorate(declared: type[T]) -> type[T]:
        built = _build(declared)
        schema = schema_of(built)
        schema.api_key = api_key
        supported = VersionRange(versions)
        schema.versions = (supported.first, supported.last)
        if flexible is not None:
            schema.flexible_from = VersionRange(flexible).first
        return built

    return decorate


def schema_of(struct_class: type) -> Schema:
    return cast("type[Struct]", struct_class).__schema__


def _build(declared: type[T]) -> type[T]:
    namespace = {
        name: value
        for name, value in vars(declared).items()
        if name not in ("__dict__", "__weakref__")
    }
    fields: list[Field] = []
    for name in declared.__annotations__:
        field = namespace.pop(name)
        assert isinstance(field, Field), f"{declared.__name__}.{name} is not a field"
        field.name = name
        fields.append(field)
    namespace["__slots__"] = tuple(field.name for field in fields)
    namespace["__schema__"] = Schema(declared.__name__, tuple(fields))
    return cast("type[T]", type(declared.__name__, (Struct,), namespace))


def _compile_constructor(schema: Schema) -> Callable[..., None]:
    """A keyword-only __init__; a list that was not given is a new one in each instance."""
    parameters, lines = [], []
    defaults: dict[str, object] = {"absent": ...}
    for field in schema.fields:
        name = field.name
        if field.default is ...:
            parameters.append(f"{name}=absent")
            lines.append(f" self.{name} = [] if {name} is absent else {name}")
        else:
            defaults[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
            lines.append(f" self.{name} = {name}")
    signature = "self, *, " + ", ".join(parameters) if parameters else "self"
    source = f"def __init__({signature}):\n" + ("\n".join(lines) or " pass")
    exec(source, defaults)
    return cast("Callable[..., None]", defaults["__init__"])
