"""The Dockerfile as a list of instructions, for there may be no Docker to ask."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

CONTINUATION = re.compile(r"\\\n")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its word, and the rest of its line."""

    word: str
    rest: str

    @property
    def arguments(self) -> list[str]:
        """The words of the rest, flags left out; of the JSON form its items."""
        if self.rest.startswith("["):
            items: list[str] = json.loads(self.rest)
            return items
        return [word for word in shlex.split(self.rest) if not word.startswith("--")]


@dataclass(slots=True)
class Stage:
    """What one FROM begins."""

    image: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, word: str) -> list[Instruction]:
        """The instructions of a word."""
        return [instruction for instruction in self.instructions if instruction.word == word]

    def last(self, word: str) -> Instruction:
        """The one that holds: a later one takes the place of those before."""
        return self.all(word)[-1]

    def environment(self) -> dict[str, str]:
        """What ENV sets."""
        pairs = [pair for instruction in self.all("ENV") for pair in instruction.arguments]
        return dict(pair.split("=", 1) for pair in pairs)


def read_stages(path: Path) -> list[Stage]:
    """The stages of a Dockerfile, in their order."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    stages: list[Stage] = []
    for line in filter(None, map(str.strip, CONTINUATION.sub(" ", "\n".join(lines)).splitlines())):
        word, _, rest = line.partition(" ")
        instruction = Instruction(word.upper(), re.sub(r"\s+", " ", rest.strip()))
        if instruction.word == "FROM":
            image, *named = instruction.arguments
            stages.append(Stage(image, named[-1] if named else ""))
        elif stages:
            stages[-1].instructions.append(instruction)
    return stages
