"""System calls by name: those in which processes are seen to wait. Numbers of the kernel's tables, by machine."""

from __future__ import annotations

import os

_X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 8: "lseek", 9: "mmap",
    11: "munmap", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 21: "access", 22: "pipe",
    23: "select", 24: "sched_yield", 26: "msync", 34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect",
    43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 56: "clone", 57: "fork", 58: "vfork",
    59: "execve", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 76: "truncate",
    77: "ftruncate", 78: "getdents", 79: "getcwd", 80: "chdir", 81: "fchdir", 82: "rename", 83: "mkdir",
    84: "rmdir", 85: "creat", 86: "link", 87: "unlink", 88: "symlink", 89: "readlink", 90: "chmod", 91: "fchmod",
    92: "chown", 93: "fchown", 94: "lchown", 128: "rt_sigtimedwait", 137: "statfs", 138: "fstatfs", 162: "sync",
    187: "readahead", 191: "getxattr", 202: "futex", 208: "io_getevents", 217: "getdents64", 221: "fadvise64",
    230: "clock_nanosleep", 232: "epoll_wait", 235: "utimes", 247: "waitid", 257: "openat", 258: "mkdirat",
    262: "newfstatat", 263: "unlinkat", 264: "renameat", 265: "linkat", 266: "symlinkat", 267: "readlinkat",
    268: "fchmodat", 269: "faccessat", 270: "pselect6", 271: "ppoll", 275: "splice", 277: "sync_file_range",
    280: "utimensat", 281: "epoll_pwait", 285: "fallocate", 288: "accept4", 295: "preadv", 296: "pwritev",
    306: "syncfs", 316: "renameat2", 322: "execveat", 326: "copy_file_range", 327: "preadv2", 328: "pwritev2",
    332: "statx", 333: "io_pgetevents", 426: "io_uring_enter", 435: "clone3", 437: "openat2", 439: "faccessat2",
    441: "epoll_pwait2", 449: "futex_waitv"}
_AARCH64 = {
    4: "io_getevents", 8: "getxattr", 17: "getcwd", 22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock",
    34: "mkdirat", 35: "unlinkat", 36: "symlinkat", 37: "linkat", 38: "renameat", 43: "statfs", 44: "fstatfs",
    45: "truncate", 46: "ftruncate", 47: "fallocate", 48: "faccessat", 49: "chdir", 50: "fchdir", 52: "fchmod",
    53: "fchmodat", 55: "fchown", 56: "openat", 57: "close", 59: "pipe2", 61: "getdents64", 62: "lseek", 63: "read",
    64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev",
    71: "sendfile", 72: "pselect6", 73: "ppoll", 76: "splice", 78: "readlinkat", 79: "newfstatat", 80: "fstat",
    81: "sync", 82: "fsync", 83: "fdatasync", 84: "sync_file_range", 88: "utimensat", 95: "waitid", 98: "futex",
    101: "nanosleep", 115: "clock_nanosleep", 124: "sched_yield", 137: "rt_sigtimedwait", 202: "accept",
    203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 213: "readahead",
    215: "munmap", 220: "clone", 221: "execve", 222: "mmap", 223: "fadvise64", 227: "msync", 242: "accept4",
    260: "wait4", 267: "syncfs", 276: "renameat2", 281: "execveat", 285: "copy_file_range", 286: "preadv2",
    287: "pwritev2", 291: "statx", 292: "io_pgetevents", 426: "io_uring_enter", 435: "clone3", 437: "openat2",
    439: "faccessat2", 441: "epoll_pwait2", 449: "futex_waitv"}
NAMES = {"x86_64": _X86_64, "aarch64": _AARCH64}

ON_FD = frozenset({
    "read", "write", "close", "fstat", "lseek", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev",
    "preadv2", "pwritev2", "fsync", "fdatasync", "ftruncate", "getdents", "getdents64", "fchmod", "fchown", "fstatfs",
    "fallocate", "sync_file_range", "fadvise64", "readahead", "syncfs", "fchdir"})
"""Calls whose first argument is the open file that they work on."""
EMPTY_PATH = 0x1000
"""AT_EMPTY_PATH: the call works on the descriptor itself, as C libraries do for fstat."""
_FLAGS_AT = {"newfstatat": 3, "statx": 2}
FAULT = "page fault"
"""The process is in no system call: it touched memory that is mapped from a file."""


def parse(text: str, machine: str = os.uname().machine) -> tuple[str, int | None]:
    """(name, file descriptor) of a line of /proc/PID/syscall; ("", None) while it runs or is not known.

    The descriptor is None where the call works on a path, or on something else.
    """
    fields = text.split()
    try:
        number = int(fields[0]) if fields else None
        args = [int(field, 16) for field in fields[1:7]]
    except ValueError:  # "running"
        return "", None
    if number is None:
        return "", None
    if number < 0:
        return FAULT, None
    name = NAMES.get(machine, {}).get(number, "")
    if len(args) == 6 and (name in ON_FD or (name in _FLAGS_AT and args[_FLAGS_AT[name]] & EMPTY_PATH)):
        fd = args[0] & 0xFFFFFFFF
        return name, fd if fd < 1 << 31 else None
    return name or f"system call {number}", None
