"""Executors: where trials run; anything with ``submit(function, *args) -> future`` fits."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from mindgap.core import InputError, integer, require, validated
from mindgap.runs.process import WorkerProcess
from mindgap.runs.work import one_line

Cluster = TypeVar("Cluster")


class AnyFuture(Protocol):
    """What the driving loop needs of a future; those of concurrent.futures, Dask and Ray fit."""

    def result(self) -> Any:
        """Return the value, or raise."""

    def done(self) -> bool:
        """Return whether there is one."""

    def cancel(self) -> Any:
        """Do not start it."""

    def add_done_callback(self, fn: Callable[[Any], Any], /) -> Any:
        """Call ``fn(future)`` at the end."""


class AnyExecutor(Protocol):
    """What the driving loop needs of an executor."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> AnyFuture:
        """Run ``fn(*args)`` when there is a free worker."""


class SerialExecutor(Executor):
    """Runs trials in this process, one after the other.

    It is for debugging, and for studies that a worker cannot import.

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


@validated
class LocalExecutor(Executor):
    """Runs trials in worker processes on this machine.

    Every worker has a thread that hands it its tasks, so a worker that dies is known to have died
    of its own task. The future of that task raises ``WorkerLostError``, the next task gets a new
    worker, and the other workers are not affected.

    Args:
        workers: Number of processes; one per available core unless given.
        threads: Number of torch threads in each of them.

    >>> with LocalExecutor(1) as executor:
    ...     executor.submit(max, 1, 2).result()
    2
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
                "them by position."
            )
        return self._threads.submit(self._call, self._aborts, None, fn, args)

    def submit_within(self, seconds: float, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Do the same, but kill the worker after ``seconds`` and raise TaskTimeoutError."""
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
        """Kill the workers and lose what was submitted; the next task starts a new worker."""
        self._aborts += 1
        for process in self._processes:
            process.kill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish what was submitted (or cancel it) and end the workers."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        if wait:
            for process in self._processes:
                process.close()


@validated
class DaskExecutor:
    """Runs trials on a Dask cluster.

    Args:
        client: The address of a scheduler, a ``distributed.Client``, or None for a cluster on this
            machine.
        in_flight: How many trials may be submitted at the same time; twice the number of threads
            unless given.
    """

    def __init__(self, client: Any = None, *, in_flight: int | None = None) -> None:
        if in_flight is not None:
            integer("in_flight", in_flight)  # before a cluster is started
        if client is None or isinstance(client, str):
            client = require("distributed", "dask").Client(client)
        self.client = client
        self.in_flight = in_flight or 2 * max(1, sum(client.nthreads().values()))

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> AnyFuture:
        """Run ``fn(*args)`` on the cluster."""
        # Dask would answer the second attempt at a pure function with the result of the first.
        future: AnyFuture = self.client.submit(fn, *args, pure=False)
        return future


@validated
class RayExecutor:
    """Runs trials on a Ray cluster, one CPU per trial.

    Args:
        address: As in ``ray.init``.
        in_flight: How many trials may be submitted at the same time; twice the number of CPUs
            unless given.
    """

    def __init__(self, address: str | None = None, *, in_flight: int | None = None) -> None:
        if in_flight is not None:
            integer("in_flight", in_flight)
        self._ray = require("ray", "ray")
        if not self._ray.is_initialized():
            self._ray.init(address=address)
        self._call = self._ray.remote(num_cpus=1, max_retries=0)(_apply)
        self.in_flight = in_flight or 2 * max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> AnyFuture:
        """Run ``fn(*args)`` on the cluster."""
        future: AnyFuture = self._call.remote(fn, *args).future()
        return future

    def shutdown(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()


def as_executor(executor: Any) -> AnyExecutor:
    """Check that an executor has ``submit``; wrap a Dask client, which would reuse old answers."""
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


@contextlib.contextmanager
def named_executor(text: str) -> Iterator[AnyExecutor | None]:
    """Open the executor that a word names, and close it at the end.

    Args:
        text: ``"local"`` for worker processes of this machine, ``"dask:ADDRESS"`` for the scheduler
            of a Dask cluster, ``"ray"`` or ``"ray:ADDRESS"`` for a Ray cluster.

    Yields:
        The executor; None for ``"local"``, which every job makes for itself.

    >>> with named_executor("local") as executor:
    ...     executor is None
    True
    """
    kind, _, address = text.partition(":")
    if text == "local":
        yield None
    elif kind == "dask" and address:
        dask = _reached(lambda: DaskExecutor(address), text)
        try:
            yield dask
        finally:
            dask.client.close()
    elif kind == "ray":
        ray = _reached(lambda: RayExecutor(address or None), text)
        try:
            yield ray
        finally:
            ray.shutdown()
    else:
        raise InputError(
            f"executor must be local, dask:ADDRESS or ray, got {text!r}. Write for example "
            "dask:tcp://127.0.0.1:8786."
        )


def _reached(make: Callable[[], Cluster], text: str) -> Cluster:
    try:
        return make()
    except (OSError, ValueError) as error:  # of the address, or of who should answer there
        raise InputError(
            f"executor must be a cluster that answers, got {text!r}: {one_line(error)}. Start the "
            "cluster, or correct the address."
        ) from error


@contextlib.contextmanager
def open_executor(
    executor: AnyExecutor | None, make: Callable[[], Executor]
) -> Iterator[AnyExecutor]:
    """Use a given executor and leave it open, or make one and close it at the end."""
    if executor is not None:
        yield as_executor(executor)
        return
    own = make()
    try:
        yield own
    finally:  # nothing is in flight unless Ctrl-C came, and then it must not be waited for
        own.shutdown(wait=False, cancel_futures=True)
        if isinstance(own, LocalExecutor):
            own.abort()
            own.shutdown()


def in_flight(executor: AnyExecutor, workers: int | None) -> int:
    """Choose how many trials are submitted and not yet finished, so that no worker is idle."""
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
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_least_one(name: str, value: int) -> int:
    """Return ``value`` if it is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be an integer of at least 1, got {value!r}. Pass 1 or more.")
    return value
