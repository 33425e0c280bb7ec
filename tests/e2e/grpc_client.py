"""A gRPC client that was generated from the .proto alone, as a user's is, and keeps count of its
calls. Nothing of Penstock's own Python is in it."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import grpc_tools
from grpc_tools import protoc

PROTO = Path(__file__).parents[2] / "src/penstock/frontdoor/grpc/penstock_v1.proto"
SERVICES = ("Streams", "Queues", "Groups", "Locks", "Administration")


def compile_proto(*options: str) -> None:
    """Runs protoc on the interface, with the given options for output."""
    own = Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{PROTO.parent}", f"-I{own}", *options, PROTO.name]
    assert protoc.main(arguments) == 0


class Generated:
    """The modules that protoc generates, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        compile_proto(f"--python_out={folder}", f"--grpc_python_out={folder}")
        self.messages = _imported(folder, "penstock_v1_pb2")
        self.stubs = _imported(folder, "penstock_v1_pb2_grpc")


def _imported(folder: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The generated code imports the other module by this name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Client:
    """Stubs of all services at one address; `called` has the path of every method that was used."""

    def __init__(self, generated: Generated, address: str, *options: tuple[str, Any]) -> None:
        self.messages = generated.messages
        self.called: set[str] = set()
        self.plain_channel = grpc.insecure_channel(address, options)
        self.channel = grpc.intercept_channel(self.plain_channel, _Counting(self.called))
        for name in SERVICES:
            stub = getattr(generated.stubs, f"{name}Stub")(self.channel)
            setattr(self, name.lower(), stub)

    streams: Any
    queues: Any
    groups: Any
    locks: Any
    administration: Any

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.plain_channel.close()


class _Counting(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):  # type: ignore[misc]
    def __init__(self, called: set[str]) -> None:
        self._called = called

    def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
        self._called.add(details.method)
        return go_on(details, request)

    def intercept_stream_stream(self, go_on: Any, details: Any, requests: Any) -> Iterator[Any]:
        self._called.add(details.method)
        return go_on(details, requests)  # type: ignore[no-any-return]


def methods(generated: Generated) -> set[str]:
    """The paths of all methods that the interface has."""
    services = generated.messages.DESCRIPTOR.services_by_name.values()
    return {
        f"/{service.full_name}/{method.name}" for service in services for method in service.methods
    }
