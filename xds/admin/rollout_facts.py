"""What all servers know of the nodes of a group, for the decisions about its rollout."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from xds.admin.gathering import gathered_of, server_asked
from xds.admin.other_servers import OtherServers
from xds.push.rollout_facts import FactsHere
from xds.rollouts.server_facts import ServerFacts, merged, read_facts


class FactsOfAll:
    """Gathers the facts of this server and of all others.

    They are not complete without those of a server that is silent, or of another release that tells them otherwise.
    """

    def __init__(self, here: FactsHere, others: OtherServers) -> None:
        self._here = here
        self._others = others

    async def gather(self, group: str, selector: str = "") -> ServerFacts:
        """The facts of a group, with the nodes that a selector matches. Raises ``ValidationError``."""
        if not self._others.names():
            return await self._here.gather(group, selector)
        query = f"?selector={quote(selector, safe='')}" if selector else ""
        asked = server_asked("GET", f"/groups/{quote(group, safe='')}/rollout/facts{query}")
        own, answers = await asyncio.gather(self._here.gather(group, selector), self._others.ask(asked))
        documents = (await gathered_of(answers)).documents
        told = {name: facts for name, each in documents.items() if (facts := read_facts(each)) is not None}
        silent = sorted({*answers.silent, *answers.received} - told.keys())
        return merged(own, told.values(), silent)
