"""Memory that a child writes its answer into: what it wrote before it hung is there, and its monitor wakes up once an
answer, not once a line."""

from __future__ import annotations

import mmap
import struct

from .children import MAX_ANSWER

BIG = 256 << 10
"""An answer's memory beyond this is given back."""
_LENGTH = struct.Struct("=Q")


class Area:
    """Memory that both sides see: how much was written, and that much."""

    def __init__(self, size: int = MAX_ANSWER) -> None:
        self.size = size
        self.map = mmap.mmap(-1, _LENGTH.size + size)

    def begin(self) -> None:
        """Nothing is written."""
        _LENGTH.pack_into(self.map, 0, 0)

    def add(self, data: bytes) -> None:
        """Write more. Raises OverflowError when there is no room."""
        used = _LENGTH.unpack_from(self.map)[0]
        if used + len(data) > self.size:
            _LENGTH.pack_into(self.map, 0, self.size + 1)
            raise OverflowError("the answer is too long")
        self.map[_LENGTH.size + used:_LENGTH.size + used + len(data)] = data
        _LENGTH.pack_into(self.map, 0, used + len(data))  # last: what is counted is whole

    def take(self) -> bytes | None:
        """What was written; None when there was no room for it."""
        used = _LENGTH.unpack_from(self.map)[0]
        if used > self.size:
            return None
        data = self.map[_LENGTH.size:_LENGTH.size + used]
        if used > BIG:
            self.map.madvise(mmap.MADV_REMOVE)
        return data

    def close(self) -> None:
        """Let go of it on this side."""
        self.map.close()
