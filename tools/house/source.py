"""The files of the repository, as the checks read them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PRODUCT = ("xds",)
CODE = (*PRODUCT, "tests", "bench", "examples", "tools")
OTHER_TEXTS = (
    "*.md",
    "docs/**/*.md",
    "api/**/*.md",
    "api/**/*.proto",
    "examples/**/*.md",
    "deploy/**/*.y*ml",
    "*.toml",
    "Makefile",
    "Dockerfile",
    "*.yml",
)

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Finding:
    """Something that a check reports, with its place. ``subject`` is the name concerned, if there is one."""

    path: str
    line: int
    detail: str
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.detail}"


@dataclass(frozen=True)
class Module:
    """A Python file. ``path`` is relative to the repository, with slashes."""

    path: str
    text: str

    @property
    def stem(self) -> str:
        return self.path.rpartition("/")[2].removesuffix(".py")

    @property
    def name(self) -> str:
        """The dotted name by which it is imported."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Everything that is defined in it, as ``function``, ``Class``, ``Class.member`` or ``NAME``."""
        return frozenset(_symbols(self.tree.body, ""))

    def prose(self) -> Iterator[tuple[int, str]]:
        """Comments and docstrings, each with its first line."""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
        for node in ast.walk(self.tree):
            if isinstance(node, Definition | ast.Module) and ast.get_docstring(node, clean=False):
                expression = node.body[0]
                yield expression.lineno, ast.get_docstring(node, clean=False) or ""


class Repository:
    """The files below ``root``; each is read once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def modules(self) -> dict[str, Module]:
        """All Python files by path, generated ones left out."""
        return {
            path.relative_to(self.root).as_posix(): Module(path.relative_to(self.root).as_posix(), path.read_text())
            for folder in CODE
            for path in sorted((self.root / folder).rglob("*.py"))
            if not path.name.endswith("_pb2.py")
        }

    @cached_property
    def product(self) -> tuple[Module, ...]:
        """The modules of the server."""
        return tuple(each for each in self.modules.values() if each.path.partition("/")[0] in PRODUCT)

    @cached_property
    def texts(self) -> dict[str, str]:
        """Pages and settings by path."""
        paths = {path for pattern in OTHER_TEXTS for path in self.root.glob(pattern) if path.is_file()}
        return {path.relative_to(self.root).as_posix(): path.read_text() for path in sorted(paths)}

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return (self.root / path).exists()

    @cached_property
    def headings(self) -> dict[str, frozenset[str]]:
        """Anchors of the headings of each page, as a link spells them."""
        return {path: frozenset(_anchors(text)) for path, text in self.texts.items() if path.endswith(".md")}


def _symbols(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, Definition):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from _symbols(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign):
            yield from (prefix + target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield prefix + node.target.id
        elif isinstance(node, ast.If):
            yield from _symbols([*node.body, *node.orelse], prefix)


def _anchors(text: str) -> Iterator[str]:
    in_block = False
    for line in text.splitlines():
        if line.startswith("```"):
            in_block = not in_block
        elif not in_block and (heading := re.match(r"#+ (.*)", line)):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            yield re.sub(r"[^\w -]", "", plain.lower()).replace(" ", "-")
