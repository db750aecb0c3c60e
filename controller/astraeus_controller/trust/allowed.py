"""The closed list of what the actor runs for the controller: each command whole, each argument of a known shape.

The process that speaks HTTP has no rights in Slurm. Were it taken over, this is what could be asked in its name: reads,
two comments, a start time and the nodes to avoid, requeues and the signals of a kind stop, a node drained or resumed.
Nothing that cancels, reprioritises, submits, changes limits or accounts, or reaches a shell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from astraeus_protocol.settings import SIGNALS

from ..slurm.jobs import COMMENT_MAX
from ..slurm.parse import STATES

TEXT_MAX = COMMENT_MAX + 64
ARGUMENTS_MAX = 16

_JOB = r"[0-9]{1,10}(?:[_+][0-9]{1,10})?"
_NODE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_NODES = r"[A-Za-z0-9][A-Za-z0-9._,\[\]-]{0,65535}"
_WORD = r"[A-Za-z0-9_.][^\s]{0,127}"
_TEXT = r"[^\0]*"
_FORM = r"[%A-Za-z0-9_,:|\x1e\x1f -]{1,2048}"
_SIGNAL = "--signal=(?:STOP|" + "|".join(SIGNALS) + ")"

FORMS: tuple[tuple[str, ...], ...] = (
    # reads
    ("squeue", "-h", "-t", re.escape(STATES), "-[oO]", _FORM),
    ("squeue", "-h", "-t", "all", "-j", "[0-9]{1,10}", "-[oO]", _FORM),
    ("sinfo", "-h", "-N", "-o", _FORM),
    ("sinfo", "-h", "-N", "-p", _WORD, "-o", _FORM),
    ("sinfo", "-h", "-N", "-n", _NODES, "-[oO]", _FORM),
    ("scontrol", "show", "config"),
    ("scontrol", "show", "job", _JOB),
    ("scontrol", "show", "hostnames", _NODES),
    ("sacct", "-X", "-n", "-P", "-j", _JOB, "-o", "End,Comment|State"),
    ("sacctmgr", "-n", "-P", "show", "user", f"name={_WORD}", "format=AdminLevel"),
    ("sacctmgr", "-n", "-P", "show", "user", "format=User,AdminLevel"),
    # writes
    ("scontrol", "requeue", "incomplete", _JOB),
    ("scontrol", "requeue", _JOB),
    ("scancel", _SIGNAL, _JOB),
    ("scancel", "--batch|--full", _SIGNAL, _JOB),
    ("scontrol", "update", f"nodename={_NODE}", f"comment={_TEXT}"),
    ("scontrol", "update", f"nodename={_NODE}", "state=drain", f"reason={_TEXT}"),
    ("scontrol", "update", f"nodename={_NODE}", "state=resume"),
)
JOB_UPDATE = (("scontrol", "update", f"jobid={_JOB}"),
              rf"StartTime=now(?:\+[0-9]{{1,9}})?|ExcNodeList=(?:{_NODES})?|(?:Admin)?Comment={_TEXT}")
"""A head, and what may follow it, each once at most."""
RECORD_UPDATE = (("sacctmgr", "-i", "-Q", "modify", "job", "where", "jobid=[0-9]{1,10}", "set"),
                 f"(?:Admin)?Comment={_TEXT}")

_COMPILED = tuple(tuple(re.compile(part, re.DOTALL) for part in form) for form in FORMS)
_OPEN = tuple((tuple(re.compile(part) for part in head), re.compile(tail, re.DOTALL))
              for head, tail in (JOB_UPDATE, RECORD_UPDATE))


def allowed(argv: Sequence[str]) -> bool:
    """Whether the actor runs it."""
    if len(argv) > ARGUMENTS_MAX or any(len(argument) > TEXT_MAX for argument in argv):
        return False
    if any(_fits(form, argv) for form in _COMPILED):
        return True
    for head, tail in _OPEN:
        values = argv[len(head):]
        if _fits(head, argv[:len(head)]) and values and all(tail.fullmatch(value) for value in values):
            keys = [value.partition("=")[0] for value in values]
            return len(set(keys)) == len(keys)
    return False


def _fits(form: Sequence[re.Pattern[str]], argv: Sequence[str]) -> bool:
    return len(form) == len(argv) and all(part.fullmatch(one) for part, one in zip(form, argv, strict=True))
