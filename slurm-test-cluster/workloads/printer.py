#!/usr/bin/env python3
"""A training on its own that prints every second until a file is there, and then does nothing, for ever.

It touches FILE.began when it begins. The last line's time of day is written to FILE.last, so that a test knows it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("until", type=Path, metavar="FILE", help="the file that ends the printing")
    parser.add_argument("--log", metavar="PATH", help="log there (appended, as Python's logging does), print nothing")
    parser.add_argument("--bar", action="store_true", help="a progress bar: CR and no line's end")
    chosen = parser.parse_args()
    chosen.until.with_suffix(".began").touch()
    if chosen.log:
        logging.basicConfig(filename=chosen.log, level=logging.INFO, format="%(asctime)s %(message)s")
    count, last = 0, 0.0
    while not chosen.until.exists():
        count += 1
        if chosen.log:
            logging.info("step %d", count)
        else:
            print(f"step {count}", end="\r" if chosen.bar else "\n")
            sys.stdout.flush()
        last = time.time()
        time.sleep(1)
    chosen.until.with_suffix(".last").write_text(str(last))
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
