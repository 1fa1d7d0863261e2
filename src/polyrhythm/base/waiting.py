"""Calls that wait for somebody else, in threads that keep no process from ending."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar, final

T = TypeVar("T")


@final
class WaitingCalls:
    """Calls in threads of their own.

    Python joins the threads of a `ThreadPoolExecutor` when it exits, however long what they wait for takes. These are
    daemons: a process that is done ends at once, and what was still waited for is nobody's any more.

    Args:
        most: at the same time; further calls wait for a thread.
        name: of the threads.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = list[threading.Thread]()

    def submit(self, call: Callable[..., T], *args: Any) -> Future[T]:
        """Begins a call, or has it wait for one that ends."""
        future = Future[T]()
        self._calls.put((future, lambda: call(*args)))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            try:
                future.set_result(call())
            except BaseException as error:  # whoever asks for the result is told
                future.set_exception(error)
            del future, call
            self._idle.release()
