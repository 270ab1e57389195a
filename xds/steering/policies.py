"""Traffic assignment policies: one document in the store for each cluster of a group that has one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress

import structlog

from xds.access.caller import UNKNOWN_CALLER, Caller
from xds.model.errors import NotFoundError, ValidationError, Violation
from xds.steering.core.policy import Policy
from xds.steering.core.policy_document import parse_policy, policy_document
from xds.store.base import Store
from xds.store.document_keys import Key, document_id, key_of
from xds.store.etags import NO_ETAG, check_etag, document_etag
from xds.store.known_documents import KnownDocuments, reviewed

KIND = "policy"
DECIDED_KIND = "assignment"  # the last decision, so that a restart moves no traffic
POLICIES_LIMIT = 1_000

_log = structlog.get_logger(logger_name="xds.steering.policies")


def etag_of(policy: Policy) -> str:
    """The etag of a policy."""
    return document_etag("p", policy_document(policy))


class PolicyTable:
    """The policies of all groups. A change is stored first and then takes effect; one change at a time."""

    kinds = (KIND, DECIDED_KIND)
    is_within = True

    def __init__(self, store: Store) -> None:
        self.known = KnownDocuments(store, self)
        self._policies: dict[Key, Policy] = {}
        self._decided: dict[Key, bytes] = {}  # by other servers, until they are taken
        self.decided = asyncio.Event()
        self.lock = asyncio.Lock()

    def __iter__(self) -> Iterator[Key]:
        """(group, cluster) of all policies, ordered."""
        return iter(sorted(self._policies))

    def __len__(self) -> int:
        return len(self._policies)

    def find(self, key: Key) -> Policy | None:
        """The policy of a cluster of a group; None if it has none."""
        return self._policies.get(key)

    def get(self, key: Key) -> Policy:
        """The policy of a cluster of a group. Raises ``NotFoundError``."""
        policy = self._policies.get(key)
        if policy is None:
            raise NotFoundError(f"cluster {key[1]!r} of group {key[0]!r} has no traffic assignment policy")
        return policy

    def of(self, group: str) -> dict[str, Policy]:
        """The policies of a group, by cluster."""
        return {key[1]: self._policies[key] for key in self if key[0] == group}

    async def load(self) -> None:
        """Load all policies. Raises ``StoreError``.

        A policy that this release cannot read is logged, not used, and kept in the store.
        """
        docs = await self.known.read(KIND)
        self._policies.clear()
        for doc in docs:
            self._take(doc.id, doc.body)

    async def apply(self, kind: str, id: str, body: bytes | None) -> None:
        """Take over a policy or decision that another server has stored, or deleted (None).

        The caller holds ``lock``.
        """
        if kind == KIND:
            self._take(id, body)
        elif body is not None:
            self._decided[key_of(id)] = body
            self.decided.set()

    def _take(self, id: str, body: bytes | None) -> None:
        """Use a stored policy, unless this release cannot read it."""
        key, policy = key_of(id), None
        try:
            policy = parse_policy(json.loads(body), key[1]) if body is not None else None
        except (ValueError, ValidationError) as error:
            _log.error("policy.unreadable", group=key[0], cluster=key[1], error_message=str(error))
        if policy is None:
            self._policies.pop(key, None)
        elif self._policies.get(key) != policy:
            self._policies[key] = policy

    # Decisions

    async def stored_decisions(self) -> dict[Key, bytes]:
        """The last decision of each policy. Raises ``StoreError``."""
        async with self.lock:
            documents = await self.known.read(DECIDED_KIND)
            self._decided.clear()
        return {key_of(document.id): document.body for document in documents}

    def take_decisions(self) -> dict[Key, bytes]:
        """The decisions that other servers have stored since the last call."""
        self.decided.clear()
        taken, self._decided = self._decided, {}
        return taken

    async def put_decision(self, key: Key, body: bytes) -> None:
        """Store the decision of a policy; not of one that is deleted. Raises ``StoreError``."""
        async with self.lock:
            if key in self._policies:
                await self.known.put(DECIDED_KIND, document_id(key), body)

    # Policies

    def check(self, key: Key, etag: str = "") -> None:
        """Raises ``ConflictError`` if the etag differs, ``ValidationError`` when there are too many policies."""
        present = self._policies.get(key)
        present_etag = etag_of(present) if present is not None else NO_ETAG
        check_etag(etag, present_etag, f"cluster {key[1]!r} of group {key[0]!r} policy", key[0])
        if present is None and len(self._policies) >= POLICIES_LIMIT:
            raise ValidationError([Violation("too_many", f"there can be at most {POLICIES_LIMIT} policies")])

    async def put(self, key: Key, policy: Policy, etag: str = "", by: Caller = UNKNOWN_CALLER) -> bool:
        """Store the policy of a cluster; False when it is unchanged.

        Raises as ``check``, ``StoreError``.
        """
        return await reviewed(lambda: self._put(key, policy, etag, by))

    async def _put(self, key: Key, policy: Policy, etag: str, by: Caller) -> bool:
        async with self.lock:
            self.check(key, etag)
            present, document = self._policies.get(key), policy_document(policy)
            if present == policy:
                return False
            old = policy_document(present) if present is not None else None
            note = by.note("policy.put", group=key[0], subject=key[1], old=old, new=document)
            await self.known.put(KIND, document_id(key), json.dumps(document).encode(), note=note)
            self._policies[key] = policy
            who = {"actor": by.actor, "author": by.author}
            _log.info("policy.put", group=key[0], cluster=key[1], strategy=str(policy.strategy), **who)
            return True

    async def delete(self, key: Key, etag: str = "", by: Caller = UNKNOWN_CALLER) -> None:
        """Delete a policy. Raises ``NotFoundError``, ``ConflictError``, ``StoreError``."""
        await reviewed(lambda: self._delete(key, etag, by))

    async def _delete(self, key: Key, etag: str, by: Caller) -> None:
        async with self.lock:
            policy = self.get(key)
            self.check(key, etag)
            note = by.note("policy.deleted", group=key[0], subject=key[1], old=policy_document(policy))
            for kind in (KIND, DECIDED_KIND):
                with suppress(NotFoundError):  # it is deleted already
                    await self.known.put(kind, document_id(key), None, note=note if kind == KIND else None)
            self._policies.pop(key, None)
            _log.info("policy.deleted", group=key[0], cluster=key[1], actor=by.actor, author=by.author)

    async def forget(self, group: str, by: Caller = UNKNOWN_CALLER) -> None:
        """Delete the policies of a group. Raises ``StoreError``."""
        for key in [key for key in self if key[0] == group]:
            await self.delete(key, by=by)

    def dropped(self, group: str) -> None:
        """Forget the policies of a group; the store has deleted them with the group."""
        for key in [key for key in self._policies if key[0] == group]:
            del self._policies[key]
