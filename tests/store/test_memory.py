"""SQLite in memory fulfils the contract. It is the engine of `test_sqlite`, but for the file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.store.audit_contract import AuditContract
from tests.store.contract import READER_BUFFER, StoreContract
from tests.store.derived_contract import DerivedContract
from xds.store.base import Store
from xds.store.sqlite.memory import MemoryStore


@pytest.mark.soak
class TestMemoryStore(AuditContract, DerivedContract, StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = MemoryStore(reader_buffer=READER_BUFFER)
        await store.open()
        yield store
        await store.close()
