"""Sends requests and counts the answers: ``python load.py URL... [--requests N] [--rate PER_SECOND]``.

The URLs are used in turn, each over its own connection. Without ``--requests`` it runs until it is ended, and prints
counts every few seconds. Exits with 1 if a request failed.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

TIMEOUT_S = 10.0
REPORT_EVERY_S = 5.0


class Target:
    """One URL and its kept-alive connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._path = parts.path or "/"
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=TIMEOUT_S)

    def ask(self) -> tuple[bool, str]:
        """Send one request; whether the answer was 200, and its first line."""
        try:
            self._connection.request("GET", self._path)
            answer = self._connection.getresponse()
            lines = answer.read().decode(errors="replace").splitlines() or [""]
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            return False, f"failed: {error}"
        return answer.status == 200, lines[0] if answer.status == 200 else f"failed: {answer.status} {lines[0]}"


def main() -> int:
    """Send, count, report; the exit code."""
    arguments = _arguments()
    targets = [Target(url) for url in arguments.urls]
    counted: Counter[str] = Counter()
    failed_n, reported = 0, time.monotonic()
    for number in _numbers(arguments.requests, arguments.rate):
        good, line = targets[number % len(targets)].ask()
        counted[line] += 1
        failed_n += not good
        if not arguments.requests and time.monotonic() - reported >= REPORT_EVERY_S:
            _report(counted)
            reported = time.monotonic()
            counted.clear()
    _report(counted)
    return 1 if failed_n else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Sends requests and counts the answers.")
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--requests", type=int, default=0, help="how many; 0: until ended")
    parser.add_argument("--rate", type=float, default=0.0, help="how many a second; 0: as fast as they are answered")
    return parser.parse_args()


def _numbers(requests_n: int, rate: float) -> Iterator[int]:
    """0, 1, 2 ..., at most ``rate`` a second."""
    for number in range(requests_n) if requests_n else itertools.count():
        if rate:
            time.sleep(1 / rate)
        yield number


def _report(counted: Counter[str]) -> None:
    total = sum(counted.values())
    for line, count in sorted(counted.items()):
        print(f"{count:6} of {total}  {line}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
