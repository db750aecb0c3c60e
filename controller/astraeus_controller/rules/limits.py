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
    Limit("DEATH_SETTLES_S", 10, "s",
          "a member that is gone, or a zombie, counts from here on",
          "a job that is cancelled, or that fails, loses its ranks one report after the other: for a second the last "
          "ones seemed to wait for the first, while who really waits takes two windows of 5 s to lose its pulse"),
    Limit("TERM_SETTLES_S", 45, "s",
          "a member that was ended by TERM counts from here on",
          "TERM is how Slurm, launchers and people end whole jobs, and who handles it lives on for Slurm's KillWait "
          "(30 s): a gang that hung and was cancelled had its cause renamed to the first rank that left"),
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
    Limit("SPIN_BUSY", 95, "%",
          "a GPU that may spin is this busy at two looks running",
          "a kernel that waits for a peer never ends: the driver tells 99 or 100 %"),
    Limit("SPIN_POWER_SHARE", 0.5, "share",
          "and draws this share of its usual power at most, which is the median of 20 samples or more while its worker "
          "progressed",
          "a waiting kernel keeps a few units of a GPU at work; training that draws half of its own median is idle for "
          "part of the time, and not fully busy"),
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
    Limit("PLACE_SAMPLES", 25, "samples",
          "a main thread's place is the one in which most of so many samples found it",
          "a single sample finds an odd one out in half of all healthy gangs, the mode of 25 in none that waits"),
    Limit("PLACE_SHARE", 0.8, "share",
          "of which at least this share found it there; else it moves, and is at work",
          "who hangs was found in one place by every sample; who writes or loads, in several"),
    Limit("PLACE_KNOWN_S", 90, "s",
          "what a closer look saw counts for so long",
          "a quiet step is looked at each 30 s at the least, and a look may be missed"),
    Limit("IDLE_BESIDE_CPU", 1, "% of a core",
          "where all others spin, who uses this or less is the one that they wait for",
          "in MLX's ring whoever waits has threads that ask for data without a pause, and the stuck rank used 0.0 %"),
    Limit("SPIN_BESIDE_CPU", 5, "% of a core",
          "others spin from here on",
          "survivors of a ring used 22 % and more with four of them on two cores, 9 % where the machine was busy; "
          "those of gloo, which block, 1.5 % at most"),
    Limit("QUEUE_STAYS_S", 10, "s",
          "what a rank was sent lies unread for so long before it counts",
          "buffers fill and drain within a step of a healthy run"),
    Limit("QUEUE_RATIO", 2, "times",
          "by so much more must lie unread at one rank than at any other",
          "in one of eight rings that hung another rank had 4 MB unread, too, against the stuck one's 9 MB"),
    Limit("QUEUE_MIN", 4096, "bytes", "less that lies unread names nobody",
          "5 bytes of a key-value store's connection named rank 0, which waited; stopped ranks had 0.4 MB and more"),
    Limit("BACKOFF_MIN", 3, "doublings",
          "a connection backs off once its time to the next try was doubled so often",
          "a lost packet doubles it once or twice; three times is 1.6 s without any answer"),
    Limit("GROUPS_SAID", 4, "places",
          "so many places of ranks in their Python code are named in a sentence, the fullest first",
          "where a gang is in more places than that, the sentence tells nothing any more"),
    Limit("SAID_OVER_S", 300, "s",
          "output so much newer than the last word of a stuck collective is a run that went on: the word is void",
          "stack traces and the other ranks' words follow within a minute or two; a collective that was only slow is "
          "followed by steps"),
    Limit("SAID_NEW_S", 60, "s",
          "a word of a stuck collective makes a suspect at once for so long, then only while the output is quiet",
          "the word is output itself; who prints on after it is not hung yet"),
    Limit("RAIL_PEERS", 3, "rails",
          "a rail is compared with its class once so many others of it are known",
          "two rails that differ do not tell which of them is the slow one"),
    Limit("RAIL_RATE_SHARE", 0.99, "share",
          "a rail whose rate is below so much of what it is made for is slow",
          "rates are names such as 400 Gb/s and no measures: a lost lane or a lower speed costs half at the least"),
    Limit("RAIL_GROWING_S", 180, "s",
          "a rail's error counters grow as long as they grew within this time",
          "they are read each minute; what grew once an hour ago holds nobody back now"),
    Limit("RAIL_ERRORS_MIN", 10, "errors",
          "so many in the job count; of a lost link or a packet that was given up, one does",
          "single symbol errors and retransmissions are part of healthy links"),
    Limit("RAIL_ERRORS_RATIO", 10, "times",
          "by so much more must a counter have grown than at the median of the job's other rails of its class",
          "congestion and adaptive routing make retransmissions and packets out of order grow on all rails alike"),
    Limit("RAS_KNOWN_S", 90, "s",
          "what NCCL's RAS said counts for so long",
          "it is asked each 30 s, and two answers may be missed: of several connections one may find nobody"),
    Limit("RAS_LOOKS", 2, "looks",
          "so many looks must find a rank missing, or operation counts as they were",
          "a rank that ends first is missing for a moment in healthy runs, and counts differ while they move"),
    Limit("RAS_STILL_S", 30, "s",
          "operation counts that differ must stand still for so long, with all ranks of the communicator running",
          "ranks launch one after the other: in a run that moves counts differ at most looks"),
    Limit("NOTHING_RUNS_S", 300, "s",
          "GPUs that are held and that no process uses for so long are a suspect",
          "between two steps of a script a minute may pass, and a look comes each 15 s"),
    Limit("AT_WORK_S", 30, "s",
          "who used 5 % of a core within this time works",
          "two looks: tokenising and compiling use a core without a pause"),
    Limit("PREPARES_MAX_S", 21600, "s",
          "for so long at most a rank 0 that works before the first collective keeps who waits for it from a stall",
          "a tokeniser that was posted had 4 h 48 min to go"),
    Limit("FIRST_WORK", 5, "operations",
          "words of one of so many first operations are of a start",
          "barriers while rank 0 tokenises: their watchdogs spoke of operation 2"),
    Limit("WORKS_PERCENT", 5, "%",
          "a process that uses so much of a core works, a GPU so busy is used",
          "as the monitor counts both"),
    Limit("OOM_BEFORE_S", 300, "s",
          "a kill for lack of memory so long before the last progress, or later, may be why a step hangs",
          "what was loaded ahead is trained on before the loader that died is missed"),
    Limit("NO_THREAD_CPU", 2, "% of a core",
          "a process that uses this or less has no thread that gets on",
          "ranks that hung on a lock used 0.5 % at most, for the threads of their libraries that look now and then"),
    Limit("WARMUP_S", 600, "s",
          "stragglers are looked for once every worker of the gang has run for so long",
          "compiling, caches that fill, and ranks that start one after the other make the first minutes uneven"),
    Limit("STRAGGLER_PASSES", 2, "passes",
          "a worker is named when so many passes in a row find the same sign on it; it is over after as many without",
          "clocks and times of one moment stand out in every healthy gang"),
    Limit("PASS_APART_S", 10, "s",
          "passes count as two where the looks that they rest on lie so far apart",
          "a job is judged with every report of each of its nodes: one look of one node would count many times"),
    Limit("LINK_SETTLES_S", 30, "s",
          "a sign of a link names a worker once it has stood for so long",
          "rails are read each minute, each 15 s once a sign is seen: what all links have is not to name "
          "the nodes that were read first"),
    Limit("STRAGGLERS_MAX", 8, "workers",
          "so many workers of a gang are named at most, the one that stands out most first",
          "where more stand out, it is the gang that is uneven"),
    Limit("CLOCK_SHARE", 0.85, "share",
          "a busy GPU is slow whose SM clock is below so much of the median of the gang's busy ones of its make",
          "chips of one make differ by a tenth under the same load"),
    Limit("CLOCK_BUSY_PERCENT", 50, "%",
          "clocks of GPUs are compared that are so busy",
          "the clock of a GPU that rests tells nothing of its work"),
    Limit("CAPPED_DRAW_SHARE", 0.8, "share",
          "a capped power (software power cap) counts only where the GPU draws at most so much of its enforced limit",
          "a healthy GPU under full load draws all that it may, and its driver says that its power is capped"),
    Limit("LIMIT_SHARE", 0.95, "share",
          "or where its limit is below so much of the gang's median",
          "one of four equal GPUs was found limited to half of the others' power"),
    Limit("HELD_SHARE", 0.1, "share",
          "a counter of the time for which a clock was held grows where it takes so much of the time between two looks",
          "a few milliseconds of it at a load's step slow nobody down"),
    Limit("SLOWDOWN_NEAR_C", 3, "°C",
          "a GPU is at risk that is so close to the temperature at which it slows itself down",
          "the next warm hour of the room takes it there"),
    Limit("ECC_CORRECTED_MIN", 100, "errors",
          "a GPU is at risk from so many corrected memory errors in a job on; of those not corrected, one does",
          "single bits that flip and are corrected are part of a healthy memory"),
    Limit("BUSIER_POINTS", 40, "points",
          "a worker whose GPUs are so much busier than the others' median, and at higher power, is waited for",
          "of a gang in step all are busy alike"),
    Limit("WAITS_POWER_SHARE", 0.75, "share",
          "beside one that works, a GPU that is busy and draws this share of its own usual power at most waits",
          "in a gang that goes on, who waits works in between: its power does not fall as far as a hung one's"),
    Limit("OWN_POWER_SHARE", 0.8, "share",
          "of its own usual power, at least: it works, and does not wait",
          "who waits is as busy as who works; only the power tells them apart"),
    Limit("RHYTHM_RATIO", 1.5, "times",
          "a worker's rhythm is slow where its switches come so much slower, beside the others', than they used to",
          "it is an estimate: what else a main thread waits for makes it switch, too"),
    Limit("RHYTHM_BASE_MIN", 2, "switches/s",
          "a rhythm is known from so many voluntary switches of the main thread on",
          "fewer make a rate by chance"),
    Limit("RHYTHM_LEAST", 0.25, "share",
          "and while at least so much of its usual rate is left",
          "what has less hangs, or nearly does: that is no rhythm"),
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

OWN_FAULT_XIDS = {13, 31, 43, 45, 68, 69}
"""Xid events of a program's own faults, and of what its end leaves behind: no sign of a bad GPU."""
XIDS_SAID = 4
"""So many are said in a sentence."""

_VALUES = {limit.name: limit.value for limit in TABLE}

COLLECTIVE_MAX_S = _VALUES["COLLECTIVE_MAX_S"]
D_STATE_S = _VALUES["D_STATE_S"]
DEATH_SETTLES_S = _VALUES["DEATH_SETTLES_S"]
TERM_SETTLES_S = _VALUES["TERM_SETTLES_S"]
PULSE_HOLD_S = _VALUES["PULSE_HOLD_S"]
WRITING_MAX_S = _VALUES["WRITING_MAX_S"]
SUSPECT_QUIET_S = _VALUES["SUSPECT_QUIET_S"]
SUSPECT_GAPS = _VALUES["SUSPECT_GAPS"]
SPIN_BUSY = _VALUES["SPIN_BUSY"]
SPIN_POWER_SHARE = _VALUES["SPIN_POWER_SHARE"]
PROGRESS_SLACK_S = _VALUES["PROGRESS_SLACK_S"]
REPORTS_APART_S = _VALUES["REPORTS_APART_S"]
PULSE_BACK_S = _VALUES["PULSE_BACK_S"]
PLACE_SAMPLES = _VALUES["PLACE_SAMPLES"]
PLACE_SHARE = _VALUES["PLACE_SHARE"]
PLACE_KNOWN_S = _VALUES["PLACE_KNOWN_S"]
IDLE_BESIDE_CPU = _VALUES["IDLE_BESIDE_CPU"]
SPIN_BESIDE_CPU = _VALUES["SPIN_BESIDE_CPU"]
QUEUE_STAYS_S = _VALUES["QUEUE_STAYS_S"]
QUEUE_RATIO = _VALUES["QUEUE_RATIO"]
QUEUE_MIN = int(_VALUES["QUEUE_MIN"])
BACKOFF_MIN = _VALUES["BACKOFF_MIN"]
GROUPS_SAID = int(_VALUES["GROUPS_SAID"])
SAID_OVER_S = _VALUES["SAID_OVER_S"]
SAID_NEW_S = _VALUES["SAID_NEW_S"]
RAIL_PEERS = int(_VALUES["RAIL_PEERS"])
RAIL_RATE_SHARE = _VALUES["RAIL_RATE_SHARE"]
RAIL_GROWING_S = _VALUES["RAIL_GROWING_S"]
RAIL_ERRORS_MIN = _VALUES["RAIL_ERRORS_MIN"]
RAIL_ERRORS_RATIO = _VALUES["RAIL_ERRORS_RATIO"]
RAS_KNOWN_S = _VALUES["RAS_KNOWN_S"]
RAS_LOOKS = int(_VALUES["RAS_LOOKS"])
RAS_STILL_S = _VALUES["RAS_STILL_S"]
NOTHING_RUNS_S = _VALUES["NOTHING_RUNS_S"]
AT_WORK_S = _VALUES["AT_WORK_S"]
PREPARES_MAX_S = _VALUES["PREPARES_MAX_S"]
FIRST_WORK = _VALUES["FIRST_WORK"]
WORKS_PERCENT = _VALUES["WORKS_PERCENT"]
OOM_BEFORE_S = _VALUES["OOM_BEFORE_S"]
NO_THREAD_CPU = _VALUES["NO_THREAD_CPU"]
WARMUP_S = _VALUES["WARMUP_S"]
STRAGGLER_PASSES = int(_VALUES["STRAGGLER_PASSES"])
PASS_APART_S = _VALUES["PASS_APART_S"]
LINK_SETTLES_S = _VALUES["LINK_SETTLES_S"]
STRAGGLERS_MAX = int(_VALUES["STRAGGLERS_MAX"])
CLOCK_SHARE = _VALUES["CLOCK_SHARE"]
CLOCK_BUSY_PERCENT = _VALUES["CLOCK_BUSY_PERCENT"]
CAPPED_DRAW_SHARE = _VALUES["CAPPED_DRAW_SHARE"]
LIMIT_SHARE = _VALUES["LIMIT_SHARE"]
HELD_SHARE = _VALUES["HELD_SHARE"]
SLOWDOWN_NEAR_C = _VALUES["SLOWDOWN_NEAR_C"]
ECC_CORRECTED_MIN = _VALUES["ECC_CORRECTED_MIN"]
BUSIER_POINTS = _VALUES["BUSIER_POINTS"]
WAITS_POWER_SHARE = _VALUES["WAITS_POWER_SHARE"]
OWN_POWER_SHARE = _VALUES["OWN_POWER_SHARE"]
RHYTHM_RATIO = _VALUES["RHYTHM_RATIO"]
RHYTHM_BASE_MIN = _VALUES["RHYTHM_BASE_MIN"]
RHYTHM_LEAST = _VALUES["RHYTHM_LEAST"]
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
