"""Every number that a rule uses, in one table. ``docs/rules.md`` shows it; a test keeps both in step."""

from __future__ import annotations

import msgspec


class Limit(msgspec.Struct, frozen=True):
    """A named default: its value and unit, what it means, and why it is what it is."""

    name: str
    value: float
    unit: str
    words: str
    why: str


TABLE: tuple[Limit, ...] = (
    Limit("COLLECTIVE_MAX_S", 600, "s",
          "a stuck collective is a stall after the run's patience or this, whichever is shorter",
          "a member that is stopped, dead or in D while the others wait is no slow step: ten minutes of it "
          "need no further patience"),
    Limit("D_STATE_S", 30, "s",
          "a member in uninterruptible sleep, or that waits for storage, counts from here on",
          "reads and writes pass through D for moments all the time; half a minute without a break is a "
          "storage or a driver that does not answer"),
    Limit("PULSE_HOLD_S", 30, "s",
          "for so long the pulse of more than half of the others must be gone before a stall is said",
          "survivors of a stopped peer lose their pulse within two windows of 5 s and never get it back; a "
          "long kernel or a barrier in a healthy run takes it away for less"),
    Limit("WRITING_MAX_S", 7200, "s",
          "for so long at most growing writes count as a checkpoint and forbid a verdict",
          "the longest checkpoints known take well under two hours; a task that writes for longer without "
          "output is not saving one"),
    Limit("SUSPECT_QUIET_S", 30, "s",
          "output must be quiet for this, or three of the step's usual gaps, before a lost pulse is shown",
          "gangs lose their pulse for a moment at each barrier; nobody prints more often than they step"),
    Limit("SUSPECT_GAPS", 3, "gaps",
          "how many of the step's usual gaps between outputs count as quiet",
          "gaps vary by a factor of two in healthy runs"),
    Limit("PROGRESS_SLACK_S", 20, "s",
          "output or a busy GPU must be this much newer than a finding's last progress to close it",
          "a monitor that was killed and started again knows its clocks to 15 s; a finding opens 30 s after "
          "the last progress at the earliest, so nothing real is missed"),
    Limit("REPORTS_APART_S", 30, "s",
          "once one rank of a gang is idle for its patience, others count as idle up to this much sooner",
          "ages count up to a node's last look, and healthy nodes report every 30 s"),
    Limit("PULSE_BACK_S", 10, "s",
          "the majority's pulse must be present for this long to close a finding of a gang",
          "two windows of 5 s: one window can catch a single wake-up"),
    Limit("SAID_OVER_S", 300, "s",
          "output so much newer than the last word of a stuck collective is a run that went on: the word is void",
          "stack traces and the other ranks' words follow within a minute or two; a collective that was only slow is "
          "followed by steps"),
    Limit("SAID_NEW_S", 60, "s",
          "a word of a stuck collective makes a suspect at once for so long, then only while the output is quiet",
          "the word is output itself; who prints on after it is not hung yet"),
    Limit("INCIDENT_WINDOW_S", 300, "s",
          "stalls of several jobs this close together, on one storage or node, are one incident",
          "jobs have a patience of their own, counted from their own last progress: an outage makes them stall over "
          "minutes, not at once"),
    Limit("INCIDENT_JOBS", 2, "jobs",
          "so many make an incident",
          "two jobs that hang on the same thing within minutes seldom do so by accident"),
    Limit("INCIDENT_REST_S", 300, "s",
          "an incident of which fewer jobs than that are still stalled is closed after this; what still hangs then is "
          "an ordinary stall",
          "when an outage ends its jobs go on within seconds to minutes of each other: the last one must not be "
          "stopped because the others were faster"),
    Limit("INCIDENT_AGAIN_S", 300, "s",
          "a stall on the same thing within this time after an incident was closed opens it again",
          "a storage that comes and goes is one outage and one alert"),
    Limit("BREAKER_WINDOW_S", 600, "s",
          "jobs that became stalled within this time count for the breaker",
          "the longest that a stuck collective is waited for: what breaks at once is said within it"),
)

_VALUES = {limit.name: limit.value for limit in TABLE}

COLLECTIVE_MAX_S = _VALUES["COLLECTIVE_MAX_S"]
D_STATE_S = _VALUES["D_STATE_S"]
PULSE_HOLD_S = _VALUES["PULSE_HOLD_S"]
WRITING_MAX_S = _VALUES["WRITING_MAX_S"]
SUSPECT_QUIET_S = _VALUES["SUSPECT_QUIET_S"]
SUSPECT_GAPS = _VALUES["SUSPECT_GAPS"]
PROGRESS_SLACK_S = _VALUES["PROGRESS_SLACK_S"]
REPORTS_APART_S = _VALUES["REPORTS_APART_S"]
PULSE_BACK_S = _VALUES["PULSE_BACK_S"]
SAID_OVER_S = _VALUES["SAID_OVER_S"]
SAID_NEW_S = _VALUES["SAID_NEW_S"]
INCIDENT_WINDOW_S = _VALUES["INCIDENT_WINDOW_S"]
INCIDENT_JOBS = _VALUES["INCIDENT_JOBS"]
INCIDENT_REST_S = _VALUES["INCIDENT_REST_S"]
INCIDENT_AGAIN_S = _VALUES["INCIDENT_AGAIN_S"]
BREAKER_WINDOW_S = _VALUES["BREAKER_WINDOW_S"]


def markdown() -> str:
    """The table as docs/rules.md holds it."""
    lines = ["| name | default | what it means | why |", "|---|---|---|---|"]
    lines += [f"| `{row.name}` | {row.value:g} {row.unit} | {row.words} | {row.why} |" for row in TABLE]
    return "\n".join(lines) + "\n"
