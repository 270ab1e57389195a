"""The group that a node belongs to.

A program that embeds the server may choose the group by a function (`Membership.choose`). Otherwise the order is: the
group of the first rule whose selector matches (highest priority first, then by name), the group with the name
``node.id``, the group with the name ``node.cluster``, ``default``. Only groups with a snapshot are chosen. A group with
a selector and without a snapshot would remove all configuration from its nodes.
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
FUNCTION = "function"

ChooseGroup = Callable[[Node], str | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """The nodes that ``selector`` matches belong to ``group``."""

    group: str
    selector: Filter
    priority: int = 0


@dataclass(frozen=True, slots=True)
class GroupCandidate:
    """A group that a node may belong to. ``detail`` says why it does or does not (``matched``)."""

    match: GroupMatch
    matched: bool
    detail: str
    selector: str = ""
    priority: int = 0


class Membership:
    """The rules in force. ``exists`` says whether a group has a snapshot.

    A selector that fails on a node does not match it. ``failures`` counts the failures, by group. ``on_failure`` is
    called with the first failure of each rule.

    ``choose`` takes precedence over all rules. It returns the group of a node, or None to apply the rules. A node whose
    chosen group has no snapshot waits for the snapshot. ``choose`` must not raise, and may be called from any thread.
    """

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self.choose: ChooseGroup = lambda node: None
        self.failures: Counter[str] = Counter()
        self.on_failure: Callable[[str, EvaluationError], None] = lambda group, error: None
        self._exists = exists
        self._rules: tuple[Rule, ...] = ()

    def assign(self, rules: Iterable[Rule]) -> None:
        """Replace the rules."""
        before = {rule.group: rule.selector.text for rule in self._rules}
        self._rules = tuple(sorted(rules, key=lambda rule: (-rule.priority, rule.group)))
        unchanged = {rule.group for rule in self._rules if before.get(rule.group) == rule.selector.text}
        self.failures = Counter({group: count for group, count in self.failures.items() if group in unchanged})

    def match(self, node: Node) -> GroupMatch | None:
        """The group of a node, and the rule that chose it; None while the node has to wait for a group."""
        chosen = self.choose(node)
        if chosen is not None:
            return GroupMatch(chosen, FUNCTION) if self._exists(chosen) else None
        if self._rules:
            record = node_record(node)
            for rule in self._rules:
                if self._exists(rule.group) and self._selects(rule, record):
                    return GroupMatch(rule.group, SELECTOR)
        return match_group(node, self._exists)

    def match_without(self, node: Node, group: str) -> GroupMatch | None:
        """The group that a node would have without ``group``. Counts no failures; may run in another thread."""
        fitting = (each.match for each in self.candidates(node) if each.matched and each.match.group != group)
        return next(fitting, None)

    def candidates(self, node: Node) -> Iterator[GroupCandidate]:
        """All groups that a node may belong to, in order of precedence. The first that matched is its group."""
        chosen = self.choose(node)
        if chosen is not None:
            yield _by_name(GroupMatch(chosen, FUNCTION), self._exists(chosen))
            return
        record = node_record(node)
        for rule in self._rules:
            matched, detail = self._reason(rule, record)
            yield GroupCandidate(GroupMatch(rule.group, SELECTOR), matched, detail, rule.selector.text, rule.priority)
        for match in candidate_groups(node):
            yield _by_name(match, self._exists(match.group))

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


def _by_name(match: GroupMatch, exists: bool) -> GroupCandidate:
    return GroupCandidate(match, exists, "there is such a group" if exists else "there is no such group")
