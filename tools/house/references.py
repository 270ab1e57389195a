"""References: pages, headings, rules, files and functions that the code and the pages name exist in the repository.

A sentence that code or a test quotes from a page is in the page, and one that it quotes of a rule is in the row of the
rule. A docstring that begins with a quotation names the page that has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from posixpath import dirname, join, normpath

from tools.house.source import Finding, Module, Repository

PROTOCOL = "docs/protocol.md"
PAGES_OF_CODE = ("", "docs", "examples")  # where code looks for a page that it names

_PAGE = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.md)\b(?:#([\w-]+))?")
_RULES = re.compile(r"\b(?:(LRS )(?:rules? )?|[Rr]ules? )(\d+(?:(?:, | and |-)\d+)*)\b")
_PAGE_QUOTE = re.compile(r"(docs/[\w/-]+\.md)(?:#[\w-]+)?: \"([^\"]+)\"")
_QUOTE_OF_PAGE = re.compile(r"\"([^\"]+)\" \((docs/[\w/-]+\.md)")
_RULE_QUOTE = re.compile(r"\b((?:LRS )?)[Rr]ule (\d+): \"([^\"]+)\"")
_BEGINS_WITH_QUOTE = re.compile(r"\s*\"([^\"]+)\"(?! \(docs/)")
_PATH = re.compile(r"(?<![\w/.-])((?:xds|api|tests|bench|docs|examples|deploy|tools)/[\w./-]*\w)(?![\w*<{/])")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_QUOTED_PATH = re.compile(r"`((?:examples|tests|docs|bench|deploy|xds|api|tools)/[\w./-]+)`")
_SYMBOL = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")
_GENERATED = frozenset({"CHANGELOG.md"})  # it has the names of earlier releases


def broken_references(repository: Repository, foreign: Sequence[str]) -> Iterator[Finding]:
    """All references that lead nowhere, and all that match one of the ``foreign`` patterns."""
    rules = _rules(repository)
    outside = [re.compile(pattern) for pattern in foreign]
    for module in repository.modules.values():
        if not module.path.startswith("tools/house/"):
            yield from _of_code(repository, module, rules)
            yield from _foreign(module.path, module.text, outside)
    for path, text in repository.texts.items():
        if path in _GENERATED:
            continue
        yield from _foreign(path, text, outside)
        yield from _of_page(repository, path, text) if path.endswith(".md") else _of_text(repository, path, text)


def _rules(repository: Repository) -> Mapping[str, str]:
    """The rows of the rules by number: ``12``, ``LRS 3``."""
    return dict(re.findall(r"^\| ((?:LRS )?\d+) \|(.*)", repository.texts.get(PROTOCOL, ""), re.MULTILINE))


def _of_code(repository: Repository, module: Module, rules: Mapping[str, str]) -> Iterator[Finding]:
    for first, text in module.prose():
        yield from _quotations(repository, module.path, first, text)
        yield from _quotations_of_rules(rules, module.path, first, text)
        for offset, line in enumerate(text.splitlines()):
            yield from _pages(repository, module.path, first + offset, line)
            yield from _paths(repository, module.path, first + offset, line)
            for match in _RULES.finditer(line):
                for number in re.findall(r"\d+", match[2]):
                    rule = f"{match[1] or ''}{number}"
                    if rule not in rules:
                        yield Finding(module.path, first + offset, f"{PROTOCOL} has no rule {rule}")


def _quotations(repository: Repository, path: str, line: int, text: str) -> Iterator[Finding]:
    """Quotations, ``docs/page.md: "..."`` and ``"..." (docs/page.md)``, that the page does not have."""
    prose = _one_line(text)
    quoted = [(match[1], match[2]) for match in _PAGE_QUOTE.finditer(prose)]
    quoted += [(match[2], match[1]) for match in _QUOTE_OF_PAGE.finditer(prose)]
    for page, sentence in quoted:
        if sentence not in _one_line(repository.texts.get(page, "")):
            yield Finding(path, line, f"{page} does not say {sentence!r}")
    if match := _BEGINS_WITH_QUOTE.match(prose):
        yield Finding(path, line, f"no page is named that says {match[1]!r}")


def _quotations_of_rules(rules: Mapping[str, str], path: str, line: int, text: str) -> Iterator[Finding]:
    """Quotations of rules, ``rule 7: "..."``, that the row of the rule does not have."""
    for is_lrs, number, sentence in _RULE_QUOTE.findall(_one_line(text)):
        if sentence not in rules.get(is_lrs + number, ""):
            yield Finding(path, line, f"{PROTOCOL} does not say {sentence!r} in rule {is_lrs}{number}")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _of_text(repository: Repository, path: str, text: str) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        if "docs/" in line:
            yield from _pages(repository, path, number, line)


def _pages(repository: Repository, path: str, line_number: int, line: str) -> Iterator[Finding]:
    for match in _PAGE.finditer(line):
        name, anchor = match[1], match[2]
        found = [join(folder, name) for folder in (*PAGES_OF_CODE, dirname(path))]
        pages = [page for each in found if (page := normpath(each)) in repository.headings]
        if not pages:
            yield Finding(path, line_number, f"there is no page {name}")
        elif anchor and anchor not in repository.headings[pages[0]]:
            yield Finding(path, line_number, f"{pages[0]} has no heading #{anchor}")


def _paths(repository: Repository, path: str, line_number: int, line: str) -> Iterator[Finding]:
    for match in _PATH.finditer(line):
        if not any(repository.exists(match[1] + ending) for ending in ("", ".py")) and not match[1].endswith(".md"):
            yield Finding(path, line_number, f"there is no file {match[1]}")


def _of_page(repository: Repository, path: str, text: str) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        for label, target in _LINK.findall(line):
            if "://" not in target and not target.startswith("mailto:"):
                yield from _link(repository, path, number, label, target)
        for name in _QUOTED_PATH.findall(line):
            if not repository.exists(name):
                yield Finding(path, number, f"there is no file {name}")


def _link(repository: Repository, path: str, line: int, label: str, target: str) -> Iterator[Finding]:
    name, _, anchor = target.partition("#")
    page = normpath(join(dirname(path), name)) if name else path
    if not repository.exists(page):
        yield Finding(path, line, f"there is no file {page}")
    elif anchor and anchor not in repository.headings.get(page, ()):
        yield Finding(path, line, f"{page} has no heading #{anchor}")
    elif page in repository.modules:
        for symbol in _SYMBOL.findall(label):
            if not symbol.endswith(".py") and symbol not in repository.modules[page].symbols:
                yield Finding(path, line, f"{page} defines no {symbol}{_moved(repository, symbol)}")


def _moved(repository: Repository, symbol: str) -> str:
    now = [module.path for module in repository.product if symbol in module.symbols]
    return f" (it is in {', '.join(now)})" if now else ""


def _foreign(path: str, text: str, patterns: Sequence[re.Pattern[str]]) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in patterns:
            if match := pattern.search(line):
                yield Finding(path, number, f"{match[0]!r} is not in the repository")


def repoint(repository: Repository, path: str) -> tuple[str, int]:
    """The page with each link to a function that moved to one other module led there, and how many there were."""
    moved = 0

    def lead(match: re.Match[str]) -> str:
        nonlocal moved
        label, target = match[1], match[2]
        symbols = _SYMBOL.findall(label)
        page = normpath(join(dirname(path), target))
        if not target.endswith(".py") or not symbols:
            return match[0]
        module = repository.modules.get(page)
        if module is not None and all(symbol in module.symbols for symbol in symbols):
            return match[0]
        now = [each.path for each in repository.product if all(symbol in each.symbols for symbol in symbols)]
        if len(now) != 1:
            return match[0]
        moved += 1
        return f"[{label}]({'../' * path.count('/')}{now[0]})"

    return _LINK.sub(lead, repository.texts[path]), moved
