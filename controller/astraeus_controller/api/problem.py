"""An answer of the API that is an error."""

from __future__ import annotations


class Problem(Exception):
    """An HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence
