"""Waiting for a condition with a deadline, the only way in which tests of the cluster wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class WaitTimeout(AssertionError):
    """A condition did not come true in time; the message says which one and what was seen last."""


def wait_for(
    condition: Callable[[], T],
    timeout: float,
    every: float = 0.5,
    what: str = "the condition",
    saw: Callable[[], object] | None = None,
) -> T:
    """Call `condition` each `every` seconds until it returns something true, and return that.

    An AssertionError or LookupError that `condition` raises counts as "not yet". After `timeout` seconds
    WaitTimeout tells what was waited for and what was seen last: `saw()` when given, else the last answer.
    """
    start = time.monotonic()
    while True:
        last: object
        try:
            answer = condition()
            if answer:
                return answer
            last = answer
        except (AssertionError, LookupError) as problem:
            last = problem
        if time.monotonic() - start >= timeout:
            seen = saw() if saw else last
            raise WaitTimeout(f"{what}: not within {timeout:g} s; seen last: {seen!r}")
        time.sleep(every)
