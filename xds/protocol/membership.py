"""Which group a node belongs to (DESIGN 4.1).

In this order: the group of the first rule whose selector matches (highest priority first, then by name), the group
named like ``node.id``, the one named like ``node.cluster``, ``default``. Only a group with a snapshot is ever chosen:
one that has only a selector so far would take everything from the nodes it matches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from xds.filter.expression import EvaluationError
from xds.filter.filter import Filter
from xds.filter.values import FixedRecord, node_record
from xds.model.node import GroupMatch, Node, candidate_groups, match_group

SELECTOR = "selector"


@dataclass(frozen=True, slots=True)
class Rule:
    """The nodes that ``selector`` matches belong to ``group``."""

    group: str
    selector: Filter
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A group that was tried for a node, and why it was taken or not. ``rule`` as in `GroupMatch`."""

    match: GroupMatch
    matched: bool
    detail: str
    selector: str = ""
    priority: int = 0


class Membership:
    """The rules in force. ``exists`` tells of a group whether it has a snapshot.

    A selector that cannot be answered for a node does not match it; ``failures`` counts that by group, and
    ``on_failure`` hears of the first one of each rule.
    """

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self.failures: Counter[str] = Counter()
        self.on_failure: Callable[[str, EvaluationError], None] = lambda group, error: None
        self._exists = exists
        self._rules: tuple[Rule, ...] = ()

    def assign(self, rules: Iterable[Rule]) -> None:
        """From now on these are the rules."""
        before = {rule.group: rule.selector.text for rule in self._rules}
        self._rules = tuple(sorted(rules, key=lambda rule: (-rule.priority, rule.group)))
        kept = {rule.group for rule in self._rules if before.get(rule.group) == rule.selector.text}
        self.failures = Counter({group: count for group, count in self.failures.items() if group in kept})

    def match(self, node: Node) -> GroupMatch | None:
        """The group of a node, and why; None leaves the node waiting for one to appear."""
        if self._rules:
            record = node_record(node)
            for rule in self._rules:
                if self._exists(rule.group) and self._selects(rule, record):
                    return GroupMatch(rule.group, SELECTOR)
        return match_group(node, self._exists)

    def match_without(self, node: Node, group: str) -> GroupMatch | None:
        """The group of a node if that one were gone. Counts no failures, and may be called from another thread."""
        exists = self._exists
        if self._rules:
            record = node_record(node)
            for rule in self._rules:
                if rule.group != group and exists(rule.group) and self._reason(rule, record)[0]:
                    return GroupMatch(rule.group, SELECTOR)
        return match_group(node, lambda name: name != group and exists(name))

    def candidates(self, node: Node) -> Iterator[Candidate]:
        """All groups that the node could belong to by rule or name, best first; the first that matched is its group."""
        record = node_record(node)
        for rule in self._rules:
            matched, detail = self._reason(rule, record)
            yield Candidate(GroupMatch(rule.group, SELECTOR), matched, detail, rule.selector.text, rule.priority)
        for match in candidate_groups(node):
            exists = self._exists(match.group)
            yield Candidate(match, exists, "there is such a group" if exists else "there is no such group")

    def _selects(self, rule: Rule, record: FixedRecord) -> bool:
        try:
            return rule.selector.matches(record)
        except EvaluationError as error:
            self.failures[rule.group] += 1
            if self.failures[rule.group] == 1:
                self.on_failure(rule.group, error)
            return False

    def _reason(self, rule: Rule, record: FixedRecord) -> tuple[bool, str]:
        try:
            matched = rule.selector.matches(record)
        except EvaluationError as error:
            return False, f"the selector cannot be answered for this node: {error}"
        if not matched:
            return False, "the selector does not match"
        if not self._exists(rule.group):
            return False, "the selector matches, but the group has no snapshot yet"
        return True, "the selector matches"
