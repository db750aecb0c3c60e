"""The history database's shape, step by step. Never change one that was released: add another. Times are Unix
seconds; ``finding``, ``event`` and ``intent`` hold JSON."""

HISTORY = """
CREATE TABLE findings (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    job INTEGER NOT NULL,
    kind TEXT NOT NULL,
    opened_at REAL NOT NULL,
    closed_at REAL,
    why TEXT NOT NULL DEFAULT '',
    finding TEXT NOT NULL
);
CREATE UNIQUE INDEX findings_open ON findings (key) WHERE closed_at IS NULL;
CREATE INDEX findings_opened ON findings (opened_at);

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    job INTEGER NOT NULL,
    run TEXT NOT NULL,
    event TEXT NOT NULL
);
CREATE INDEX events_job ON events (job, id);
CREATE INDEX events_run ON events (run, id);

-- One row per restart that was begun. finding is its finding's row: one restart per finding at most.
CREATE TABLE intents (
    id INTEGER PRIMARY KEY,
    finding INTEGER NOT NULL UNIQUE,
    job INTEGER NOT NULL,
    restarts INTEGER NOT NULL,
    stage TEXT NOT NULL,
    begun_at REAL NOT NULL,
    stopped_at REAL,
    done_at REAL,
    outcome TEXT NOT NULL DEFAULT '',
    intent TEXT NOT NULL
);
CREATE INDEX intents_job ON intents (job, id);
CREATE INDEX intents_stopped ON intents (stopped_at);

-- The piece that stands in a job's field, and the one that was about to be written there.
CREATE TABLE pieces (
    job INTEGER NOT NULL,
    field TEXT NOT NULL,
    written TEXT NOT NULL DEFAULT '',
    intended TEXT NOT NULL DEFAULT '',
    skipped TEXT NOT NULL DEFAULT '',
    at REAL NOT NULL,
    PRIMARY KEY (job, field)
);

-- What is still to be brought into a job's comments: a controller that dies goes on with it.
CREATE TABLE wanted (
    job INTEGER PRIMARY KEY,
    comment TEXT NOT NULL,
    admin_comment TEXT NOT NULL,
    at REAL NOT NULL
);

-- Whose job it was: history shows a user only what is the user's own.
CREATE TABLE owners (
    job INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    uid INTEGER NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX owners_run ON owners (run);
"""

EXCLUSIONS = """
-- Whose excluded nodes are not its user's own by now, and what those were: taken back when Slurm allows it.
CREATE TABLE exclusions (
    job INTEGER PRIMARY KEY,
    exclusion TEXT NOT NULL
);
"""

CLOCKS_AND_ATTEMPTS = """
CREATE INDEX events_at ON events (at);
CREATE INDEX findings_job ON findings (job);

-- Unix time minus CLOCK_BOOTTIME when the finding opened, and the boot that this holds for: a time of day that was
-- set while no controller ran is no progress.
ALTER TABLE findings ADD COLUMN clock REAL;
ALTER TABLE findings ADD COLUMN boot TEXT NOT NULL DEFAULT '';

-- Attempts that progressed for long enough to give the budget back, also where they ended without us.
CREATE TABLE attempts (
    job INTEGER NOT NULL,
    restarts INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (job, restarts)
);
"""

INCIDENTS = """
CREATE TABLE incidents (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    cause TEXT NOT NULL,
    subject TEXT NOT NULL,
    opened_at REAL NOT NULL,
    closed_at REAL
);

-- The jobs of an incident, each once; by: what it shares with the others.
CREATE TABLE incident_jobs (
    incident INTEGER NOT NULL,
    job INTEGER NOT NULL,
    run TEXT NOT NULL,
    at REAL NOT NULL,
    by TEXT NOT NULL,
    PRIMARY KEY (incident, job)
);
CREATE INDEX incident_jobs_job ON incident_jobs (job);
"""

STACKS = """
-- Python stacks that were read of a job: for a finding (its key), or because a person asked (''). body: JSON, deflated.
CREATE TABLE stacks (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL,
    finding TEXT NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX stacks_job ON stacks (job, id);
"""

EVIDENCE = """
-- What a finding (id: its row) rests on: the readings when it opened or was last known better. body: JSON, deflated.
-- uid: whose job it was, for a job's id may be given anew.
CREATE TABLE evidence (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX evidence_job ON evidence (job, id);
"""

FLAGS = """
-- What findings say of nodes. cleared_at: a person has dealt with the node.
CREATE TABLE flags (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    node TEXT NOT NULL,
    at REAL NOT NULL,
    job INTEGER NOT NULL,
    cleared_at REAL,
    flag TEXT NOT NULL
);
CREATE INDEX flags_node ON flags (node, id);
CREATE INDEX flags_at ON flags (at);

-- Our piece of a node's Comment, and our reason where we had it drained: only those very texts are ours.
CREATE TABLE node_marks (
    node TEXT PRIMARY KEY,
    mark TEXT NOT NULL
);
"""

MIGRATIONS = (HISTORY, EXCLUSIONS, CLOCKS_AND_ATTEMPTS, INCIDENTS, STACKS, EVIDENCE, FLAGS)
"""Their number is the database's user_version."""
