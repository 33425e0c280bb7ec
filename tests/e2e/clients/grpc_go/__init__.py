"""A gRPC client in Go, with stubs that are generated from the .proto into the build folder."""

import fcntl
import shutil
from pathlib import Path

from tests.e2e.grpc_client import PROTO, compile_proto
from tests.e2e.processes import run_tool

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[3] / "build" / "grpc_go"
SOURCES = ("go.mod", "go.sum", "main.go", "tools.go")
GENERATORS = (
    "google.golang.org/protobuf/cmd/protoc-gen-go",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
)
# With an empty cache of modules it downloads a few, and compiles them.
BUILD_TIMEOUT_S = 170
CALL_TIMEOUT_S = 90


def build() -> Path:
    """The program, compiled once for all test processes."""
    BUILD.mkdir(parents=True, exist_ok=True)
    wanted = "".join(map(Path.read_text, [*(HERE / name for name in SOURCES), PROTO]))
    complete, program = BUILD / "complete", BUILD / "client"
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists() or complete.read_text() != wanted:
            for name in SOURCES:
                shutil.copy(HERE / name, BUILD / name)
            for generator in GENERATORS:
                _go("build", "-o", f"bin/{generator.rpartition('/')[2]}", generator)
            compile_proto(
                *(f"--plugin={BUILD}/bin/protoc-gen-{kind}" for kind in ("go", "go-grpc")),
                *(f"--{kind}_out={BUILD}" for kind in ("go", "go-grpc")),
                *(f"--{kind}_opt=module=penstock.local" for kind in ("go", "go-grpc")),
            )
            _go("build", "-o", str(program), ".")
            complete.write_text(wanted)
    return program


def _go(*arguments: str) -> None:
    flags = "GOFLAGS=-mod=mod -buildvcs=false"
    run_tool(["env", "-C", str(BUILD), flags, "go", *arguments], timeout_s=BUILD_TIMEOUT_S)


def run_every_call(address: str) -> set[str]:
    """The paths of the methods that it called."""
    return set(run_tool([str(build()), address], timeout_s=CALL_TIMEOUT_S).decode().split())
