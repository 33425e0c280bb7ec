"""Reads a Dockerfile: its stages, each with its instructions and those it builds on."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

INSTRUCTION = re.compile(r"^(?P<name>[A-Z]+) (?P<rest>.*)$", re.S)
ASSIGNMENT = re.compile(r'(\w+)=("[^"]*"|\S+)')


@dataclass(slots=True, kw_only=True)
class Stage:
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def last(self, name: str) -> str:
        return [rest for each, rest in self.instructions if each == name][-1]

    def words(self, name: str) -> list[str]:
        """Of an instruction in its exec form, which runs without a shell."""
        words: list[str] = json.loads(self.last(name))
        return words

    def health_check(self) -> list[str]:
        words: list[str] = json.loads(self.last("HEALTHCHECK").partition("CMD ")[2])
        return words

    def environment(self) -> dict[str, str]:
        pairs = [ASSIGNMENT.findall(rest) for name, rest in self.instructions if name == "ENV"]
        return {key: value.strip('"') for each in pairs for key, value in each}


def read_stages(path: Path) -> dict[str, Stage]:
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.M).replace("\\\n", " ")
    stages: dict[str, Stage] = {}
    current = Stage()
    for line in filter(None, map(str.strip, text.splitlines())):
        match = INSTRUCTION.match(line)
        assert match, line
        if match["name"] != "FROM":
            current.instructions.append((match["name"], match["rest"]))
            continue
        origin, _, name = match["rest"].partition(" AS ")
        below = stages.get(origin, Stage())
        current = stages[name] = Stage(instructions=list(below.instructions))
    return stages
