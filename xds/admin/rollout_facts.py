"""What all servers know of the nodes of a group, for the decisions about its rollout."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from xds.admin.gathering import gathered_of, server_asked
from xds.admin.other_servers import OtherServers
from xds.push.rollout_facts import FactsHere, ServerFacts, merged, read_facts


class FactsOfAll:
    """Gathers the facts of this server and of all others.

    They are not complete without those of a server that is silent, or of another release that tells them otherwise.
    """

    def __init__(self, here: FactsHere, others: OtherServers) -> None:
        self._here = here
        self._others = others

    async def gather(self, group: str) -> ServerFacts:
        """The facts of a group."""
        if not self._others.names():
            return await self._here.gather(group)
        asked = server_asked("GET", f"/groups/{quote(group, safe='')}/rollout/facts")
        own, answers = await asyncio.gather(self._here.gather(group), self._others.ask(asked))
        documents = (await gathered_of(answers)).documents.values()
        told = [each for each in map(read_facts, documents) if each is not None]
        is_complete = len(told) == len(answers.received) and not answers.silent
        return merged(own, told, is_complete)
