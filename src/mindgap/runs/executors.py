"""Executors: where trials run. Anything with ``submit(function, *args)`` that gives a future fits."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Protocol

from mindgap.core import InputError, require
from mindgap.runs.process import WorkerProcess


class AnyFuture(Protocol):
    """What a sweep asks of a future; those of concurrent.futures, Dask and Ray fit."""

    def result(self) -> Any:
        """The value, or raise."""

    def done(self) -> bool:
        """Whether there is one."""

    def cancel(self) -> Any:
        """Do not start."""

    def add_done_callback(self, fn: Callable[[Any], Any], /) -> Any:
        """Call ``fn(future)`` at the end."""


class AnyExecutor(Protocol):
    """What a sweep asks of an executor."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> AnyFuture:
        """Run ``fn(*args)`` some time."""


class SerialExecutor(Executor):
    """In this process, one after the other: for debugging, and for studies that a worker cannot import.

    >>> SerialExecutor().submit(max, 1, 2).result()
    2
    """

    in_flight = 1

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run now."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class LocalExecutor(Executor):
    """Worker processes on this machine, each with ``threads`` torch threads.

    One thread per worker hands it its tasks, so a worker that dies is known to have died of its own
    task: the task's future raises ``WorkerLostError``, the next task gets a fresh worker, and the
    others notice nothing.
    """

    def __init__(self, workers: int | None = None, *, threads: int = 1) -> None:
        self.workers = at_least_one("workers", available_cores() if workers is None else workers)
        self.threads = at_least_one("threads", threads)
        self.in_flight = 2 * self.workers
        self._processes: list[WorkerProcess] = []
        self._aborts = 0
        self._local = threading.local()
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="mindgap-worker")

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn(*args)`` in the next free worker."""
        if kwargs:
            raise InputError(
                f"LocalExecutor takes positional arguments only, got {', '.join(kwargs)}. Pass "
                "them so."
            )
        return self._threads.submit(self._call, self._aborts, None, fn, args)

    def submit_within(self, seconds: float, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """The same in at most so many seconds; then its worker is killed and the future raises TaskTimeoutError."""
        return self._threads.submit(self._call, self._aborts, seconds, fn, args)

    def _call(
        self, aborts: int, seconds: float | None, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        if not hasattr(self._local, "process"):
            self._local.process = WorkerProcess(self.threads)
            self._processes.append(self._local.process)
        process: WorkerProcess = self._local.process
        wanted = lambda: aborts == self._aborts  # noqa: E731
        if seconds is None:
            return process.call(fn, *args, wanted=wanted)
        return process.call_within(seconds, fn, *args, wanted=wanted)

    def abort(self) -> None:
        """Kill the workers at once; what was submitted is lost, what is submitted next starts fresh ones."""
        self._aborts += 1
        for process in self._processes:
            process.kill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish what was submitted (or cancel it) and end the workers."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        if wait:
            for process in self._processes:
                process.close()


class DaskExecutor:
    """A Dask cluster: an address, a ``distributed.Client``, or nothing for a cluster on this machine."""

    def __init__(self, client: Any = None, *, in_flight: int | None = None) -> None:
        if client is None or isinstance(client, str):
            client = require("distributed", "dask").Client(client)
        self.client = client
        self.in_flight = in_flight or 2 * max(1, sum(client.nthreads().values()))

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> AnyFuture:
        """Run ``fn(*args)`` on the cluster; ``pure=False`` so that a second attempt is a second run."""
        future: AnyFuture = self.client.submit(fn, *args, pure=False)
        return future


class RayExecutor:
    """A Ray cluster; ``address`` as in ``ray.init``, one CPU per trial."""

    def __init__(self, address: str | None = None, *, in_flight: int | None = None) -> None:
        self._ray = require("ray", "ray")
        if not self._ray.is_initialized():
            self._ray.init(address=address)
        self._call = self._ray.remote(num_cpus=1, max_retries=0)(_apply)
        self.in_flight = in_flight or 2 * max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> AnyFuture:
        """Run ``fn(*args)`` on the cluster."""
        future: AnyFuture = self._call.remote(fn, *args).future()
        return future


def as_executor(executor: Any) -> AnyExecutor:
    """Accept anything with ``submit``; a bare Dask client is wrapped, because it would reuse an earlier answer."""
    if not callable(getattr(executor, "submit", None)):
        raise InputError(
            f"executor must have a method submit(function, *args), got {type(executor).__name__}. "
            "Pass LocalExecutor(), SerialExecutor(), DaskExecutor(), RayExecutor() or a "
            "concurrent.futures executor."
        )
    found: AnyExecutor = (
        DaskExecutor(executor) if type(executor).__module__.startswith("distributed.") else executor
    )
    return found


def in_flight(executor: AnyExecutor, workers: int | None) -> int:
    """How many trials may be submitted and not yet finished: enough to keep every worker busy."""
    if getattr(executor, "in_flight", None) == 1:
        return 1
    if workers is not None:
        return 2 * at_least_one("workers", workers)
    return int(getattr(executor, "in_flight", 0)) or 2 * int(
        getattr(executor, "_max_workers", available_cores())
    )


def _apply(fn: Callable[..., Any], *args: Any) -> Any:
    return fn(*args)


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_least_one(name: str, value: int) -> int:
    """``value`` if it is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be an integer of at least 1, got {value!r}. Pass 1 or more.")
    return value
