"""Methods that send calls: the one list of them serves blocking and asynchronous clients.

A client has ``apply = Sent(groups.apply)``: its ``apply`` takes the arguments of the function, sends the call that the
function makes, and returns the result. Of an asynchronous client it is a coroutine function.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from xds.calls.call import Answer, ApiCall, document_of, next_page, result_of
from xds.calls.failures import ServerBusyError, UnreachableServerError
from xds.calls.fleet import EventCursor

if TYPE_CHECKING:
    from xds.admin.models.events import ServerEvent
    from xds.calls.sender import LongAnswer

P = ParamSpec("P")
T = TypeVar("T")


class BlockingMethods(ABC):
    """A client whose methods block."""

    @abstractmethod
    def send(self, call: ApiCall[Any], page: str = "") -> Answer:
        """The answer to a call, whatever its status. Raises ``UnreachableServerError``."""

    @abstractmethod
    def begun(self, call: ApiCall[Any]) -> AbstractContextManager[LongAnswer]:
        """The answer to a call while it arrives. Raises ``UnreachableServerError``, also after a silence."""

    def run(self, call: ApiCall[T]) -> T:
        """The result of a call. Raises ``AdminApiError``."""
        result = result_of(call, document_of(self.send(call)))
        return self.run(result) if isinstance(result, ApiCall) else result

    def pages(self, call: ApiCall[tuple[T, ...]]) -> Iterator[T]:
        """The items of a list, page after page. Raises ``AdminApiError``."""
        page, is_last = "", False
        while not is_last:
            document = document_of(self.send(call, page))
            answer_page = result_of(call, document)
            assert not isinstance(answer_page, ApiCall)
            yield from answer_page
            page = next_page(document)
            is_last = not page

    def events(
        self, *, kinds: Sequence[str] = (), group: str = "", node: str = "", after: str = "", reconnects: bool = True
    ) -> Iterator[ServerEvent]:
        """Events as they happen, without end. ``after``: start behind the event with this id; ``"0"``: at the oldest.

        A lost connection is opened again, and the events of the gap follow. If the server no longer has some of them,
        an event of the kind ``lagged`` says so. Raises ``UnreachableServerError`` or ``ServerBusyError`` if the server
        does not answer for a minute, and with ``reconnects=False`` when the connection is lost.
        """
        cursor = EventCursor(kinds, group, node, after, reconnects)
        while True:
            try:
                with self.begun(cursor.call()) as answer:
                    if not answer.is_success:
                        document_of(answer.whole())
                    cursor.begin(answer.headers)
                    yield from filter(None, map(cursor.read, answer.lines()))
            except (UnreachableServerError, ServerBusyError) as error:
                cursor.fail(error)
            if not reconnects:
                return
            time.sleep(cursor.delay_s())


class ArrivingAnswer(Protocol):
    """An answer that is read while it arrives. ``headers`` have lower-case names."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""

    @property
    def is_success(self) -> bool:
        """Whether the request is carried out."""

    async def whole(self) -> Answer:
        """All of it."""

    def lines(self) -> AsyncIterator[str]:
        """Its lines, without their ends."""


class AsyncMethods(ABC):
    """A client whose methods are coroutine functions."""

    @abstractmethod
    async def send(self, call: ApiCall[Any], page: str = "") -> Answer:
        """The answer to a call, whatever its status. Raises ``UnreachableServerError``."""

    @abstractmethod
    def begun(self, call: ApiCall[Any]) -> AbstractAsyncContextManager[ArrivingAnswer]:
        """The answer to a call while it arrives. Raises ``UnreachableServerError``, also after a silence."""

    async def run(self, call: ApiCall[T]) -> T:
        """The result of a call. Raises ``AdminApiError``."""
        result = result_of(call, document_of(await self.send(call)))
        return await self.run(result) if isinstance(result, ApiCall) else result

    async def pages(self, call: ApiCall[tuple[T, ...]]) -> AsyncIterator[T]:
        """The items of a list, page after page. Raises ``AdminApiError``."""
        page, is_last = "", False
        while not is_last:
            document = document_of(await self.send(call, page))
            answer_page = result_of(call, document)
            assert not isinstance(answer_page, ApiCall)
            for each in answer_page:
                yield each
            page = next_page(document)
            is_last = not page

    @property
    def has_ended(self) -> bool:
        """Whether there is nobody to send to any more."""
        return False

    async def events(
        self, *, kinds: Sequence[str] = (), group: str = "", node: str = "", after: str = "", reconnects: bool = True
    ) -> AsyncIterator[ServerEvent]:
        """As ``Client.events``, as an asynchronous iterator."""
        cursor = EventCursor(kinds, group, node, after, reconnects)
        while True:
            try:
                async with self.begun(cursor.call()) as answer:
                    if not answer.is_success:
                        document_of(await answer.whole())
                    cursor.begin(answer.headers)
                    async for line in answer.lines():
                        event = cursor.read(line)
                        if event is not None:
                            yield event
            except (UnreachableServerError, ServerBusyError) as error:
                cursor.fail(error)
            if not reconnects or self.has_ended:
                return
            await asyncio.sleep(cursor.delay_s())


def _sending(send: Callable[[ApiCall[Any]], Any], make: Callable[P, ApiCall[Any]]) -> Callable[P, Any]:
    @wraps(make)
    def method(*given: P.args, **options: P.kwargs) -> Any:
        return send(make(*given, **options))

    return method


class Sent(Generic[P, T]):
    """A method that sends the call which a function makes, and returns its result."""

    def __init__(self, make: Callable[P, ApiCall[T]]) -> None:
        self._make = make

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, ApiCall[T]]: ...
    @overload
    def __get__(self, client: BlockingMethods, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncMethods, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: BlockingMethods | AsyncMethods | None, owner: type) -> Callable[P, Any]:
        return self._make if client is None else _sending(client.run, self._make)


class Paged(Generic[P, T]):
    """As `Sent`, for a list: the method returns an iterator over the items of all pages."""

    def __init__(self, make: Callable[P, ApiCall[tuple[T, ...]]]) -> None:
        self._make = make

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, ApiCall[tuple[T, ...]]]: ...
    @overload
    def __get__(self, client: BlockingMethods, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncMethods, owner: type) -> Callable[P, AsyncIterator[T]]: ...

    def __get__(self, client: BlockingMethods | AsyncMethods | None, owner: type) -> Callable[P, Any]:
        return self._make if client is None else _sending(client.pages, self._make)
