#!/usr/bin/env python3
"""A task that has nothing to do with the others of its step: silently it ends after a while, or computes.

independent.py --exit-after 5     sleeps, ends with 0
independent.py --burn 0.3         uses 30 % of a core until it is ended
"""

from __future__ import annotations

import argparse
import time

SLICE_S = 0.1


def compute(seconds: float) -> None:
    value, until = 1, time.monotonic() + seconds
    while time.monotonic() < until:
        value = value * 1103515245 % 2147483647 + 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--exit-after", type=float, metavar="SECONDS", help="end with 0 after so long (else: never)"
    )
    parser.add_argument(
        "--burn",
        type=float,
        nargs="?",
        const=1.0,
        default=0.0,
        metavar="SHARE",
        help="share of a core to use (1)",
    )
    chosen = parser.parse_args()
    until = float("inf") if chosen.exit_after is None else time.monotonic() + chosen.exit_after
    while (left := until - time.monotonic()) > 0:
        whole = min(SLICE_S, left) if chosen.burn else min(60.0, left)
        compute(whole * chosen.burn)
        time.sleep(whole * (1 - chosen.burn))


if __name__ == "__main__":
    main()
