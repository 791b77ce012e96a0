"""The client for code without an event loop: a thread of this process runs the loop.

``SyncClient`` runs operations on the same ``Transport`` as every other client does, so that URLs,
TLS, sentinels, clusters, retries and numbered calls are those of services. Rules:

1. One process has one event loop thread, started by the first call and shared by all clients.
2. A forked child has none of its parent's threads. It starts an event loop thread of its own, and
   ``shared_client`` makes new clients there. A client that its parent has used raises
   ``WrongContext``; one that it has not used becomes the child's.
3. When the interpreter exits, clients are closed and the thread ends.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from .._protocol.operation import Operation
from .._transport.connect import connect, make_transport
from .._transport.transport import Transport
from .._transport.urls import read
from ..options import Options

R = TypeVar("R")


class SyncClient:
    """Runs operations for threads that wait for the result. Nothing is connected before the first.

    *password*, if given, takes the place of the one in *url*. *namespaces* are those that the
    client works with, which some URLs limit.
    """

    def __init__(
        self,
        url: str,
        options: Options,
        *,
        password: str | None = None,
        namespaces: tuple[str, ...] = (),
    ) -> None:
        address = read(url, options, password=password)
        #: For coroutines that ``call`` runs; it belongs to the event loop thread.
        self.transport = make_transport(partial(connect, address, options, namespaces), options)
        _clients.add(self)

    def run(self, operation: Operation[R]) -> R:
        """Run *operation* and return its result, or raise its error; one round trip.

        Takes ``Options.deadline`` at most. An exception that a signal handler raises meanwhile
        gives the operation up, as cancelling a task does.
        """
        return self.call(self.transport.run(operation))

    def start(self, operation: Operation[R]) -> Future[R]:
        """Begin *operation*; ``wait`` returns its result, cancelling the future gives it up."""
        return _event_loop_thread().start(self.transport.run(operation))

    def run_ahead(self, operations: Iterable[Operation[R]]) -> Iterator[R]:
        """Run operations one after the other; the next is in flight while the caller has a result.

        A caller that leaves early gives up the one in flight.
        """
        pending: Future[R] | None = None
        try:
            for operation in operations:
                if pending is None:
                    pending = self.start(operation)
                    continue
                result, pending = wait(pending), self.start(operation)
                yield result
            if pending is not None:
                yield wait(pending)
        finally:
            if pending is not None:
                pending.cancel()

    def run_chain(
        self, first: Operation[R], following: Callable[[R], Operation[R] | None]
    ) -> Iterator[R]:
        """Run *first*, and the operation that *following* makes of each result until it is None.

        As in ``run_ahead``, the next is in flight while the caller has a result.
        """
        pending: Future[R] | None = self.start(first)
        try:
            while pending is not None:
                result = wait(pending)
                operation = following(result)
                pending = None if operation is None else self.start(operation)
                yield result
        finally:
            if pending is not None:
                pending.cancel()

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the event loop thread and return its result."""
        return _event_loop_thread().run(work)

    def close(self) -> None:
        """Finish the calls in flight and disconnect; a second call does nothing."""
        _clients.discard(self)
        if not self.transport.is_gone:
            self.call(self.transport.aclose())


class EventLoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="aiorsmq-ng event loop", daemon=True
        )
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        """Begin a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine and wait for it; an exception in the waiting thread cancels it."""
        return wait(self.start(work))

    def stop(self) -> None:
        """Cancel what still runs, end the thread and close the loop."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def wait(future: Future[R]) -> R:
    """Return the result of *future*; an exception in the waiting thread cancels it."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def _close_transports(transports: list[Transport]) -> None:
    closings = (transport.aclose() for transport in transports if not transport.is_gone)
    await asyncio.gather(*closings, return_exceptions=True)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


_lock = threading.Lock()
_thread: EventLoopThread | None = None
#: Clients that are not closed.
_clients: WeakSet[SyncClient] = WeakSet()
_shared: dict[tuple[Any, ...], SyncClient] = {}
#: Threads of the parent of this process. They are kept, because an event loop that is collected
#: here could close what the parent still uses.
_inherited: list[EventLoopThread] = []


def shared_client(
    url: str,
    options: Options,
    *,
    password: str | None = None,
    namespaces: tuple[str, ...] = (),
) -> SyncClient:
    """Return this process's client for these arguments; it stays open until the process ends."""
    key = (url, options, password, namespaces)
    with _lock:
        if key not in _shared:
            _shared[key] = SyncClient(url, options, password=password, namespaces=namespaces)
        return _shared[key]


def _event_loop_thread() -> EventLoopThread:
    global _thread  # noqa: PLW0603 - one per process
    with _lock:
        if _thread is None:
            _thread = EventLoopThread()
        return _thread


@atexit.register
def _close_all() -> None:
    global _thread  # noqa: PLW0603
    if _thread is None:
        return
    # Errors are ignored. Python starts no more threads by now, which releasing an embedded server
    # needs; that server's own exit handler releases it.
    _thread.run(_close_transports([client.transport for client in _clients]))
    _thread.stop()
    _thread = None


def _forked() -> None:
    global _lock, _thread
    if _thread is not None:
        _inherited.append(_thread)
    _lock, _thread = threading.Lock(), None
    _shared.clear()
    for client in list(_clients):
        # One that the parent has not used may be used here, and is closed here.
        if client.transport.is_gone:
            _clients.discard(client)


os.register_at_fork(after_in_child=_forked)
