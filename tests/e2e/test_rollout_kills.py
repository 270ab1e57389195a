"""kill -9 of the server at every step of careful rollouts: only the wave has the head, and each ends.

The steps are those of the server, and what people do: pause, resume, promote, abort, and push other configuration.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

import httpx
import pytest

from tests.e2e.rollout_site import BASE, GROUP, HEAD, RolloutSite, open_site
from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import Variant
from tests.support.envoy import get, wait_body
from tests.support.process import wait_until
from tests.support.upstream import Upstream
from xds.admin.models.rollouts import rollout_fields
from xds.rollouts.rollout import Rollout

ENVOYS = 6
PUSH_S = 0.1  # a push takes less
STEP_S = 1.5  # a wave takes as long
PLAN = {"waves": "1,50%", "hold_s": 1, "timeout_s": 60, "max_errors": 1}

DAY_S = 86_400
TOLD = ("state", "base", "head", "wave", "reason", "why")  # by the API, of the document
NEXT = "next"  # the upstream of what supersedes, and what it answers
SUPERSEDE = "supersede"
LONGEST_S = {SUPERSEDE: PUSH_S, "pause": 0.03, "resume": 0.03, "promote": 0.03, "abort": PUSH_S}  # of what people ask
ENDS = {"pause": "paused", "resume": "running", SUPERSEDE: "running", "promote": "promoted", "abort": "rolled_back"}
STORIES = (
    ("pause", "resume", SUPERSEDE, "abort"),
    ("pause", SUPERSEDE, "promote"),
    (SUPERSEDE, "pause", "abort"),
    ("promote",),
    ("abort",),
)
BEFORE, DURING, AFTER = "before", "during", "after"  # when the server is killed


@pytest.fixture(params=[Variant.ADS_DELTA, pytest.param(Variant.ADS_SOTW, marks=pytest.mark.soak)])
def site(tmp_path: Path, running: ExitStack, background: Background, request: pytest.FixtureRequest) -> RolloutSite:
    """Some Envoys, not yet under load."""
    return open_site(tmp_path, running, background, request.param, ENVOYS)


def kill(site: RolloutSite, added: dict[str, int], asking: Thread | None = None) -> Rollout | None:
    """Kill the server, see that nobody outside of the stored wave had anything of the head, and start it again.

    ``asking`` has asked it for something. Returns what was stored.
    """
    site.server.kill()
    if asking is not None:
        asking.join()
    stored = site.stored()
    check_outside(site, stored, added)
    site.server.start()
    if stored is not None:  # that of an earlier story, if the push was not stored
        revision = site.server.get(f"/groups/{GROUP}")["revision"]
        least = stored.head + (stored.state == "rolled_back")
        assert revision == least if stored.is_open else revision >= least, stored
    return stored


def check_outside(site: RolloutSite, stored: Rollout | None, added: dict[str, int]) -> None:
    """Nobody outside of the wave has had anything of the head; of what that superseded, only those of its waves."""
    inside, had = set[str](), set[str]()
    if stored is not None:
        inside = {name for name in site.envoys if stored.in_wave(site.node(name))}
        had = {name for name in site.envoys if stored.has_superseded and stored.had_head(site.node(name))}
    assert site.answering(NEXT) <= (inside if had else set()), stored
    if stored is None or stored.state != "promoted":
        outside = site.envoys.keys() - inside - had
        assert not site.answering() & outside, stored
        now = site.clusters_added()
        assert {name: now[name] for name in outside} == {name: added[name] for name in outside}, stored


def push_and_kill(site: RolloutSite, content: list[r.Json], added: dict[str, int], after_s: float) -> None:
    """Kill the server in the middle of the push that begins a rollout, and push again."""

    def push() -> None:
        with suppress(ConnectionError):
            site.push(content, PLAN)

    pushing = Thread(target=push)
    pushing.start()
    time.sleep(after_s)
    kill(site, added, pushing)
    again = site.push(content, PLAN)  # 409: it has been taken back already
    assert again.status_code in (200, 409), again.text


@pytest.mark.parametrize("kills", [3, pytest.param(24, marks=pytest.mark.soak)])
def test_kills_at_every_step(site: RolloutSite, kills: int, taken_port: int) -> None:
    source = random.Random()
    left, is_bad = kills, False
    while left:
        is_bad = not is_bad
        site.start()
        added = site.clusters_added()
        bad = [r.listener("taken", r.rds("web", site.variant.config_source), taken_port)] if is_bad else []
        push_and_kill(site, [*site.content(HEAD), *bad], added, source.uniform(0, PUSH_S))
        left -= 1
        while left and site.rollout()["state"] == "running":
            time.sleep(source.uniform(0, STEP_S))
            kill(site, added)
            left -= 1
        body = BASE if is_bad else HEAD
        wait_until(lambda: site.rollout()["state"] != "running", "the end", detail=site.rollout)
        assert site.rollout()["state"] == ("rolled_back" if is_bad else "promoted"), site.rollout()
        for name, port in site.ports.items():
            wait_body(port, body)
            site.server.wait_synced(GROUP, name)
        site.end()


class People:
    """What people do with a rollout that does nothing by itself. The server is killed amid each.

    ``seen`` counts what has come of it: what was asked, whether it was stored, and whether it was answered.
    """

    def __init__(self, site: RolloutSite, next_upstream: Upstream, source: random.Random) -> None:
        self.site = site
        self.seen: Counter[tuple[str, bool, bool]] = Counter()
        self._next = next_upstream
        self._source = source
        self._added: dict[str, int] = {}
        self._asked = 0

    def begin(self) -> None:
        """Begin a rollout, and wait until the wave has the head."""
        self.site.start()
        self._added = self.site.clusters_added()
        plan = {"waves": self._source.choice(("1", "50%")), "hold_s": DAY_S, "timeout_s": DAY_S, "max_errors": 1}
        self.site.roll_out(self.site.content(HEAD), **plan)
        wait_until(self.site.answering, "the wave has the head", detail=self.site.rollout)

    def act(self, act: str, moment: str) -> None:
        """Ask for something, and kill the server then. Whoever has no answer asks again."""
        self._asked += 1
        why = f"{act}, {self._asked}"
        before, revision = self.site.rollout(), self._revision()
        answers: list[httpx.Response] = []

        def ask() -> None:
            with suppress(ConnectionError):
                answers.append(self._ask(act, why))

        asking = Thread(target=ask)
        if moment != BEFORE:
            asking.start()
        if moment == AFTER:
            asking.join()
        elif moment == DURING:
            time.sleep(self._source.uniform(0, LONGEST_S[act]))
        stored = kill(self.site, self._added, asking if moment != BEFORE else None)
        assert stored is not None
        is_done, is_revision = stored.message == why, act in (SUPERSEDE, "abort")
        self.seen[act, is_done, bool(answers)] += 1
        assert [each.status_code for each in answers] in ([], [200]), answers[0].text
        assert is_done or not answers, stored
        assert answers or moment != AFTER

        # It has happened whole, or not at all.
        if not is_done:
            assert told(rollout_fields(stored, None)) == told(before)
        self._check(stored)
        assert self._revision() == revision + (is_done and is_revision)
        if self._source.random() < 0.5:  # else the next is asked of a server that hardly anybody has come back to
            self._check_lines(stored)

        # It can be asked for again.
        if not answers:
            again = self._ask(act, why)
            has_ended = is_done and ENDS[act] in ("promoted", "rolled_back")
            assert again.status_code == 200 or (has_ended and again.status_code == 404), again.text
        wait_until(lambda: self.site.rollout()["state"] == ENDS[act], f"{act} has happened", detail=self.site.rollout)
        after = self.site.rollout()
        assert (after["why"], after["base"]) == (why, before["base"])
        assert after["head"] == before["head"] + (act == SUPERSEDE)
        assert self._revision() == revision + is_revision

    def end(self) -> None:
        """Kill the server once more. Everybody has what is stored, and no request was lost."""
        stored = kill(self.site, self._added)
        assert stored is not None
        self._check(stored)
        self._check_lines(stored)
        self.site.end()

    def _ask(self, act: str, why: str) -> httpx.Response:
        request = self.site.server.request
        if act == SUPERSEDE:
            body = {"resources": self.site.content(NEXT, self._next.port)}
            return request("PUT", f"/api/v1/groups/{GROUP}/snapshot", json=body, params={"message": why})
        return request("POST", f"/api/v1/groups/{GROUP}/rollout", json={"action": act, "message": why})

    def _revision(self) -> int:
        revision: int = self.site.server.get(f"/groups/{GROUP}")["revision"]
        return revision

    def _check(self, stored: Rollout) -> None:
        """The API and the history tell what is stored."""
        wanted = told(rollout_fields(stored, None))
        if stored.is_promoting:  # it may have ended by now
            wait_until(lambda: self.site.rollout()["state"] == "promoted", "promoted", detail=self.site.rollout)
            wanted |= {"state": "promoted", "reason": "promoted by hand"}
        assert told(self.site.rollout()) == wanted
        rows = {each["revision"]: each for each in self.site.server.get(f"/groups/{GROUP}/revisions")["items"]}
        newest, is_back = rows[max(rows)], stored.state == "rolled_back"
        assert newest["revision"] == self._revision() == stored.head + is_back
        assert (newest["kind"], rows[stored.head]["undone_by"]) == (
            ("rollback", newest["revision"]) if is_back else ("push", 0)
        )
        assert not is_back or newest["message"] == stored.reason
        lines = {revision: each["line"] for revision, each in rows.items() if "line" in each}
        is_split = wanted["state"] in ("running", "paused")
        assert lines == ({stored.head: "head", stored.base: "base"} if is_split else {})

    def _check_lines(self, stored: Rollout) -> None:
        """Every Envoy is shown on its line, and answers from it."""
        site = self.site
        head = NEXT if stored.has_superseded else HEAD
        ended = {"": head if stored.is_promoting else BASE}
        bodies = {"head": head, "base": BASE} if stored.is_open and not stored.is_promoting else ended
        inside: set[str] = set()

        def differences() -> dict[str, tuple[str, str]]:
            nodes = site.server.nodes()
            lines = {name: nodes[name].get("line", "") for name in site.envoys if nodes.get(name, {}).get("streams")}
            answers = {name: get(port).text for name, port in site.ports.items()}
            inside.update(name for name, line in lines.items() if line == "head")
            found = {name: (lines.get(name, "away"), answer) for name, answer in answers.items()}
            return {name: (line, answer) for name, (line, answer) in found.items() if bodies.get(line) != answer}

        wait_until(lambda: not differences(), "all are on their lines", detail=differences)
        if "head" in bodies:
            wave = {name for name in site.envoys if stored.in_wave(site.node(name))}
            # One that nobody was connected to when it began, or was resumed, takes those that come.
            assert inside == wave if stored.connected_n else inside >= wave, stored


def told(rollout: r.Json) -> r.Json:
    """What the API tells of the document."""
    return {name: rollout.get(name) or None for name in TOLD}


@pytest.mark.parametrize(
    ("moments", "stories"),
    [
        ((DURING,), STORIES[:1]),
        pytest.param((BEFORE, DURING, DURING, DURING, AFTER), STORIES, marks=pytest.mark.soak),
    ],
    ids=["few", "many"],
)
def test_kills_amid_what_people_do(
    site: RolloutSite,
    upstream: Callable[[str], Upstream],
    moments: Sequence[str],
    stories: Sequence[Sequence[str]],
) -> None:
    people = People(site, upstream(NEXT), random.Random())
    for moment in moments:
        for story in stories:
            people.begin()
            for act in story:
                people.act(act, moment)
            people.end()
    print(people.seen)
