"""Leaves root behind: what speaks HTTP runs as a user of its own, who owns the history and nothing else."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path


class DropFault(Exception):
    """The user can't be taken; the text says what to do."""


def user_of(name: str) -> pwd.struct_passwd | None:
    """Whom to become; None where there is nothing to drop. Raises DropFault."""
    if os.geteuid() != 0:
        return None
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise DropFault(f"there is no user {name} to serve as; make one: useradd --system --no-create-home {name}, or "
                        "name another in [trust] user") from None
    return found if found.pw_uid else None


def own(state: Path, user: pwd.struct_passwd) -> None:
    """Give the user the state folder and the files in it. Raises OSError.

    By descriptors, and never a file with a second name: the folder was his, and root must change nothing that he
    linked into it.
    """
    for path in (state, *state.iterdir()):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue  # a symlink, a socket: none of ours
        try:
            status = os.fstat(fd)
            if path == state or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1):
                os.fchown(fd, user.pw_uid, user.pw_gid)
        finally:
            os.close(fd)


def become(user: pwd.struct_passwd) -> None:
    """For good: no way back to root."""
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
