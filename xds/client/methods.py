"""Methods that send calls: the one list of them serves blocking and asynchronous clients.

A client has ``apply = Sent(groups.apply)``: its ``apply`` takes the arguments of the function, sends the call that the
function makes, and returns the result. Of an asynchronous client it is a coroutine function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar, overload

from xds.calls.call import Answer, ApiCall, document_of, next_page, result_of

P = ParamSpec("P")
T = TypeVar("T")


class BlockingMethods(ABC):
    """A client whose methods block."""

    @abstractmethod
    def send(self, call: ApiCall[Any], page: str = "") -> Answer:
        """The answer to a call, whatever its status. Raises ``UnreachableServerError``."""

    def run(self, call: ApiCall[T]) -> T:
        """The result of a call. Raises ``AdminApiError``."""
        result = result_of(call, document_of(self.send(call)))
        return self.run(result) if isinstance(result, ApiCall) else result

    def pages(self, call: ApiCall[tuple[T, ...]]) -> Iterator[T]:
        """The items of a list, page after page. Raises ``AdminApiError``."""
        page, is_last = "", False
        while not is_last:
            document = document_of(self.send(call, page))
            found = result_of(call, document)
            assert not isinstance(found, ApiCall)
            yield from found
            page = next_page(document)
            is_last = not page


class AsyncMethods(ABC):
    """A client whose methods are coroutine functions."""

    @abstractmethod
    async def send(self, call: ApiCall[Any], page: str = "") -> Answer:
        """The answer to a call, whatever its status. Raises ``UnreachableServerError``."""

    async def run(self, call: ApiCall[T]) -> T:
        """The result of a call. Raises ``AdminApiError``."""
        result = result_of(call, document_of(await self.send(call)))
        return await self.run(result) if isinstance(result, ApiCall) else result

    async def pages(self, call: ApiCall[tuple[T, ...]]) -> AsyncIterator[T]:
        """The items of a list, page after page. Raises ``AdminApiError``."""
        page, is_last = "", False
        while not is_last:
            document = document_of(await self.send(call, page))
            found = result_of(call, document)
            assert not isinstance(found, ApiCall)
            for each in found:
                yield each
            page = next_page(document)
            is_last = not page


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
        make = self._make
        if client is None:
            return make

        @wraps(make)
        def method(*given: P.args, **options: P.kwargs) -> Any:
            return client.run(make(*given, **options))

        return method


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
        make = self._make
        if client is None:
            return make

        @wraps(make)
        def method(*given: P.args, **options: P.kwargs) -> Any:
            return client.pages(make(*given, **options))

        return method
