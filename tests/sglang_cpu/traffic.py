"""Steady traffic for an SGLang server, cheap enough to run beside it.

Every worker has exactly one request under way, with a short prompt and many new tokens, so the number of
workers is the size of nearly every decode batch.

    python tests/sglang_cpu/traffic.py http://127.0.0.1:30000 --concurrency 4 --seconds 60
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

FIRST_TOKEN: Final = 3
LAST_TOKEN: Final = 1023
"""Token ids of the tiny model, without the special ones."""

REQUEST_TIMEOUT_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Shape:
    """How long requests are; every length is drawn evenly between two bounds, both included."""

    prompt_tokens: tuple[int, int] = (16, 32)
    new_tokens: tuple[int, int] = (64, 128)


@dataclass(frozen=True)
class Totals:
    """What the traffic has done so far."""

    requests: int = 0
    failures: int = 0
    new_tokens: int = 0


def random_request(generator: random.Random, shape: Shape) -> tuple[str, int]:
    """Return the JSON body of one request to `/generate`, and how many tokens it asks for."""
    new_tokens = generator.randint(*shape.new_tokens)
    body = {
        "input_ids": [
            generator.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(generator.randint(*shape.prompt_tokens))
        ],
        "sampling_params": {"max_new_tokens": new_tokens, "ignore_eos": True, "temperature": 0},
    }
    return json.dumps(body), new_tokens


class Traffic:
    """A context manager that keeps a number of requests under way until it is left.

    Args:
        url: address of the server, `http://host:port`.
        concurrency: requests under way at first.
        seconds: hard limit, after which the workers end by themselves.
        seed: of the random prompts; worker `n` always sends the same sequence.
        shape: how long prompts and answers are.
    """

    def __init__(
        self, url: str, *, concurrency: int, seconds: float = 600.0, seed: int = 0, shape: Shape | None = None
    ) -> None:
        self._address = urlsplit(url).netloc
        self._concurrency = concurrency
        self._seconds = seconds
        self._seed = seed
        self._shape = shape or Shape()
        self._deadline = 0.0
        self._totals = Totals()
        self._workers: dict[int, threading.Thread] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self._deadline = time.monotonic() + self._seconds
        self.set_concurrency(self._concurrency)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def totals(self) -> Totals:
        """What all workers have done so far."""
        with self._lock:
            return self._totals

    def set_concurrency(self, workers: int) -> None:
        """Change the number of requests under way; a worker too many ends after the request it is in."""
        with self._lock:
            self._concurrency = workers
            missing = [number for number in range(workers) if number not in self._workers]
            for number in missing:
                self._workers[number] = threading.Thread(
                    target=self._work, args=(number,), name=f"traffic-{number}", daemon=True
                )
                self._workers[number].start()

    def wait(self) -> None:
        """Return when every worker has ended, at the time limit."""
        while workers := self._running():
            workers[0].join()

    def stop(self) -> None:
        """End all workers; returns after the requests under way."""
        self._stopping.set()
        self.wait()

    def _running(self) -> list[threading.Thread]:
        with self._lock:
            return [worker for worker in self._workers.values() if worker.is_alive()]

    def _leaves(self, number: int) -> bool:
        """Take a worker off the list if it has to end, so that its number can be given again."""
        with self._lock:
            over = self._stopping.is_set() or time.monotonic() >= self._deadline
            ends = over or number >= self._concurrency
            if ends:
                del self._workers[number]
            return ends

    def _work(self, number: int) -> None:
        generator = random.Random(f"{self._seed}-{number}")
        connection = http.client.HTTPConnection(self._address, timeout=REQUEST_TIMEOUT_SECONDS)
        try:
            while not self._leaves(number):
                body, new_tokens = random_request(generator, self._shape)
                try:
                    connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
                    response = connection.getresponse()
                    response.read()
                    succeeded = response.status == http.HTTPStatus.OK
                except (OSError, http.client.HTTPException):
                    succeeded = False
                    connection.close()  # the next request opens it again
                self._count(new_tokens if succeeded else None)
                if not succeeded:
                    self._stopping.wait(RETRY_SECONDS)
        finally:
            connection.close()

    def _count(self, new_tokens: int | None) -> None:
        with self._lock:
            before = self._totals
            self._totals = (
                Totals(before.requests, before.failures + 1, before.new_tokens)
                if new_tokens is None
                else Totals(before.requests + 1, before.failures, before.new_tokens + new_tokens)
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: traffic for some seconds, then the totals as one line of JSON."""
    parser = argparse.ArgumentParser(description="Keep a number of requests to an SGLang server under way.")
    parser.add_argument("url", help="address of the server, http://host:port")
    parser.add_argument("--concurrency", type=int, default=4, help="requests under way (default: 4)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the random prompts (default: 0)")
    options = parser.parse_args(arguments)
    traffic = Traffic(options.url, concurrency=options.concurrency, seconds=options.seconds, seed=options.seed)
    with traffic:
        traffic.wait()
    sys.stdout.write(json.dumps(asdict(traffic.totals)) + "\n")
    return 1 if traffic.totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
