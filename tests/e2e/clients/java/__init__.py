"""Apache Kafka's own Java client and command-line tools, in one JVM that serves many tests."""

import fcntl
import hashlib
import itertools
import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.processes import run_tool

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[3] / "build" / "java"
NEEDED = ("mvn", "javac", "java")
INSTALL_TIMEOUT_S = 240
CALL_TIMEOUT_S = 90.0
# On two shared cores the compiler that starts fastest wins: no test runs long enough for the other.
JVM_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xmx256m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

OnEvent = Callable[[str, list[Any]], None]


class JavaError(Exception):
    """An error of Kafka's client: its class, without the package, and its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


def missing() -> list[str]:
    """What must be installed before `install` can work."""
    return [tool for tool in NEEDED if shutil.which(tool) is None]


def install() -> str:
    """Fetch the pinned jars and compile the sources, once for all test processes: a class path."""
    BUILD.mkdir(parents=True, exist_ok=True)
    jars, classes = BUILD / "jars", BUILD / "classes"
    class_path = f"{classes}:{jars}/*"
    pom, sources = HERE / "pom.xml", sorted(HERE.glob("*.java"))
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make(jars, [pom], ["mvn", "-q", "-B", "-f", str(pom), *copy_jars_to(jars)])
        compiler = ["javac", "-d", str(classes), "-cp", class_path, *map(str, sources)]
        make(classes, [pom, *sources], compiler)
    return class_path


def install_newer_client() -> str:
    """A class path on which a newer client stands before the one of `install`."""
    class_path = install()
    jars, pom = BUILD / "newer-client", HERE / "newer-client.xml"
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make(jars, [pom], ["mvn", "-q", "-B", "-f", str(pom), *copy_jars_to(jars)])
    return f"{jars}/*:{class_path}"


def copy_jars_to(folder: Path) -> list[str]:
    goal = "dependency:copy-dependencies"
    return [goal, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]


def make(folder: Path, sources: list[Path], command: list[str]) -> None:
    """Run the command that fills the folder, unless it was filled from these very sources."""
    complete = folder / "complete"
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    if complete.exists() and complete.read_text() == digest:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    run_tool(command, timeout_s=INSTALL_TIMEOUT_S)
    complete.write_text(digest)


class Java:
    """A running JVM. Calls may come from several threads; each waits for its own answer."""

    def __init__(self, stderr_path: Path, class_path: str | None = None) -> None:
        self.listeners: dict[str, OnEvent] = {}
        self.stderr_path = stderr_path
        self._numbers = itertools.count()
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        with stderr_path.open("w") as stderr:
            self._process = subprocess.Popen(
                ["java", *JVM_FLAGS, "-cp", class_path or install(), "Main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def call(
        self, command: str, bootstrap: str, *, timeout_s: float = CALL_TIMEOUT_S, **arguments: Any
    ) -> Any:
        """Run one command; raises JavaError with what the client raised."""
        number = next(self._numbers)
        answers = self._waiting[number] = queue.SimpleQueue()
        arguments["bootstrap"] = bootstrap
        self._send({"id": number, "command": command, "arguments": arguments})
        try:
            answer = answers.get(timeout=timeout_s)
        except queue.Empty:
            said = self.stderr_path.read_text()[-2000:]
            raise AssertionError(f"no answer to {command} in {timeout_s} s: {said}") from None
        finally:
            del self._waiting[number]
        if "error" in answer:
            raise JavaError(answer["error"]["type"], answer["error"]["message"])
        return answer["result"]

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "event" in message:
                self.listeners[message["member"]](message["event"], message["details"])
            elif answers := self._waiting.get(message["id"]):
                answers.put(message)

    def tool(self, main: str, *words: str, stdin: str = "") -> str:
        """Run one of Kafka's command-line tools: what it printed. Its failure is the test's."""
        outcome = self.call("tool", "", main=main, words=words, stdin=stdin)
        assert outcome["code"] == 0, outcome["printed"]
        printed = outcome["printed"]
        assert isinstance(printed, str)
        return printed

    def close(self) -> None:
        """The JVM ends by itself when its input does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=10)
