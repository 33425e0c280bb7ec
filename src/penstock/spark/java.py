"""Where Java is, or one sentence that says what to install.

`python -m penstock.spark.java` prints the one or the other, and fails when there is none.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from penstock.model.errors import Explained

MAJOR_VERSION_MIN = 17
ANSWER_TIMEOUT_S = 30.0
# `java -version` says `version "17.0.15"`, and before Java 9 it said `version "1.8.0_392"`.
VERSION = re.compile(r'version "(?:1\.)?(?P<major>\d+)')
INSTALLED = (
    "/usr/lib/jvm/*",
    "/usr/lib64/jvm/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)


class JavaNotFound(Explained):
    """Spark cannot start here; the message says what to install."""


def find_java(
    environment: Mapping[str, str] = os.environ, places: Sequence[str] = INSTALLED
) -> Path:
    """The home of the first Java that Spark can run on: JAVA_HOME, PATH, then usual places."""
    seen: list[str] = []
    for program in _candidates(environment, places):
        version = _major_version(program)
        if version is not None and version >= MAJOR_VERSION_MIN:
            return program.parent.parent
        if version is not None:
            seen.append(f"{program} is version {version}")
    raise JavaNotFound(_advice(seen))


def _advice(seen: list[str]) -> str:
    found = "; ".join(seen) or "none was found in JAVA_HOME, on PATH or in the usual places"
    return (
        f"Spark needs Java {MAJOR_VERSION_MIN} or newer, and {found}: install it "
        f"(Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install "
        f"openjdk@17) or set JAVA_HOME."
    )


def _candidates(environment: Mapping[str, str], places: Sequence[str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if program := shutil.which("java", path=environment.get("PATH")):
        # A link such as /usr/bin/java leads to the installation it belongs to.
        yield Path(program).resolve()
    for pattern in places:
        folders = Path("/").glob(pattern.removeprefix("/"))
        yield from (folder / "bin" / "java" for folder in sorted(folders))


def _major_version(program: Path) -> int | None:
    """None: there is no such program, or it does not run (macOS has a stub that only complains)."""
    if not program.is_file():
        return None
    try:
        answer = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = VERSION.search(answer.stderr + answer.stdout)
    return int(match["major"]) if match and answer.returncode == 0 else None


def main() -> int:
    try:
        print(find_java())
    except JavaNotFound as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
