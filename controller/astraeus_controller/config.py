"""The site's settings: every key with its type, default and words, in one table.

``/etc/astraeus/astraeus.toml`` holds them; ``docs/config.md`` is made from this table. A value that can't be
used is refused at start with one sentence that says where it stands and what to write instead.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec
from astraeus_protocol.durations import parse_seconds
from astraeus_protocol.settings import STALL_AFTER_MAX, STALL_AFTER_MIN, Settings

from .rules.limits import INCIDENT_JOBS, INCIDENT_WINDOW_S, WARMUP_S
from .rules.picture import Policy

PATH = Path("/etc/astraeus/astraeus.toml")


class ConfigFault(Exception):
    """The configuration can't be used; the text is one sentence."""


def _doc(text: str, **limits: object) -> msgspec.Meta:
    return msgspec.Meta(description=text, **limits)  # type: ignore[call-overload, no-any-return]


class Watch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[watch]`` and ``[partition.NAME]``: what holds for a run that says nothing itself."""

    mode: Annotated[str, _doc("observe: judge, record, alert, write nothing into Slurm, stop nothing; act: do",
                              pattern="^(observe|act)$")] = "observe"
    stall_after: Annotated[str, _doc("patience where the run gives none: a time from 30s to 7d")] = "30m"
    stall_action: Annotated[str, _doc("what happens to a stalled run that says nothing: alert or restart",
                                      pattern="^(alert|restart)$")] = "alert"
    max_restarts: Annotated[int, _doc("restart budget where the run gives none", ge=0, le=100)] = 10
    never_began: Annotated[str, _doc("runs whose GPUs were never busy: alert as others, or only list",
                                     pattern="^(alert|list)$")] = "alert"
    allow_beside_progress: Annotated[bool, _doc("restart a job although another of its steps progresses")] = False
    avoid_guilty: Annotated[bool, _doc("restart every run as if it had said --avoid-guilty: on other nodes than the "
                                       "guilty rank's")] = False
    rail_rates: Annotated[list[str], _doc("what RDMA rails are made for, `CLASS=GB/S`, the class as a shell glob and "
                                          "the first that matches: `[\"MT4129/*/InfiniBand=400\"]`. A class without "
                                          "is made for what most of its rails have; `astraeus progress JOB --json` "
                                          "shows classes")] = []


class Unwatched(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[unwatched]``: shell globs; a job that matches one is not watched unless it asks."""

    partition: Annotated[list[str], _doc("partitions")] = []
    qos: Annotated[list[str], _doc("QOS names")] = []
    account: Annotated[list[str], _doc("accounts")] = []
    job_name: Annotated[list[str], _doc("job names")] = msgspec.field(
        default_factory=lambda: ["sys/dashboard/*", "*jupyter*"])


class Controller(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[controller]``"""

    listen: Annotated[str, _doc("address and port that monitors report to")] = "0.0.0.0:6831"
    api_socket: Annotated[str, _doc("unix socket of the API")] = "/run/astraeus/api.sock"
    api_listen: Annotated[str, _doc("address and port of the API for those who are not on this host; empty: none. What "
                                    "is asked here has to come with a proof of who asks")] = "127.0.0.1:6832"
    key: Annotated[str, _doc("file with the keys shared with the monitors, one a line, where nodes do not prove "
                             "themselves with MUNGE; only root may read it")] = (
        "/etc/astraeus/report.key")
    heartbeat_url: Annotated[str, _doc("a dead man's switch: this address is asked each minute while the controller is "
                                       "well; empty: none")] = ""
    state: Annotated[str, _doc("directory of the history database")] = "/var/lib/astraeus"
    slurm_user: Annotated[str, _doc("the user that may see every job beside root")] = "slurm"


class Trust(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[trust]``: who may say and see what."""

    auth: Annotated[str, _doc("how nodes prove themselves: munge, key (the file of [controller] key, where Slurm uses "
                              "auth/slurm), or auto (key where the file is there, else munge)",
                              pattern="^(auto|munge|key)$")] = "auto"
    unmunge: Annotated[str, _doc("the program that decodes MUNGE credentials")] = "unmunge"
    check_address: Annotated[bool, _doc("a node's credential must have been made at an address of that node; false "
                                        "where hosts have addresses that Slurm does not know")] = True
    user: Annotated[str, _doc("the user that serves reports and API where the controller is started as root; only its "
                              "actor stays root")] = "astraeus"
    private_jobs: Annotated[str, _doc("who sees a job: slurm (its owner alone where PrivateData has jobs, else "
                                      "everybody), or owner. Operators see all; evidence is the owner's and theirs",
                                      pattern="^(slurm|owner)$")] = "slurm"
    operators: Annotated[list[str], _doc("users who are operators here beside root, SlurmUser and those whom Slurm's "
                                         "accounting makes Operator or Administrator")] = []
    proxies: Annotated[list[str], _doc("addresses of reverse proxies that say who asks; from others the header is "
                                       "ignored")] = []
    proxy_header: Annotated[str, _doc("the header in which they say it")] = "X-Remote-User"


class Slurm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[slurm]``"""

    bin: Annotated[str, _doc("directory of squeue, scontrol, scancel, sacct, sacctmgr; empty: PATH")] = ""
    poll_s: Annotated[float, _doc("seconds between two reads of all jobs", ge=5, le=600)] = 60
    timeout_s: Annotated[float, _doc("deadline of one Slurm command", ge=1, le=120)] = 15
    write_interval_s: Annotated[float, _doc("least time between two writes into Slurm", ge=0)] = 1


class Restart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[restart]``: bounds on what the controller does by itself."""

    backoff_s: Annotated[float, _doc("wait before the first restart; doubles with each", ge=0)] = 10
    backoff_max_s: Annotated[float, _doc("the longest wait", ge=0)] = 300
    max_restarts_total: Annotated[int, _doc("restarts of one job in all; progress gives none of them back", ge=0)] = 50
    min_interval_s: Annotated[float, _doc("least time between two stops", ge=0)] = 30
    max_per_hour: Annotated[int, _doc("stops an hour at most", ge=0)] = 20
    breaker_jobs: Annotated[int, _doc("nothing is stopped when more jobs than this, and more than breaker_share of "
                                      "those watched, became stalled within 10 min", ge=1)] = 3
    breaker_share: Annotated[float, _doc("a share of the watched jobs, see breaker_jobs", ge=0, le=1)] = 0.02
    stop_file_wait_s: Annotated[float, _doc("how long to wait for the stop file on every node", ge=0)] = 10
    avoid_nodes: Annotated[int, _doc("nodes that one run avoids at a time at most, see --avoid-guilty; 0: none, "
                                     "whatever the run says", ge=0)] = 2


class Incidents(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[incidents]``: jobs that stall together are one incident, and none of them is stopped."""

    by_storage: Annotated[bool, _doc("jobs that wait for the same mount are one incident")] = True
    by_nodes: Annotated[bool, _doc("jobs that stalled on the same node are one incident; false where many small "
                                   "jobs share each node and stall for reasons of their own")] = True
    min_jobs: Annotated[int, _doc("so many jobs make an incident", ge=2)] = int(INCIDENT_JOBS)
    window_s: Annotated[float, _doc("how close together they have to stall", ge=1)] = INCIDENT_WINDOW_S


class Straggler(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[straggler]``: one worker that holds its gang back."""

    ratio: Annotated[float, _doc("a worker's own time per iteration stands out from so many times the others' median "
                                 "on, where the run says nothing itself", ge=1.01, le=10)] = 1.2
    warmup_s: Annotated[float, _doc("every worker of a gang has run for so long before one is named", ge=0)] = WARMUP_S


class Nodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[nodes]``: what happens to a node whose hardware holds a job back."""

    node_action: Annotated[str, _doc("none: it is listed only; comment: our piece stands in its Comment, too; drain: "
                                     "it is drained, too, with the sentence as its reason",
                                     pattern="^(none|comment|drain)$")] = "comment"
    max_drained: Annotated[int, _doc("so many nodes are drained by `node_action = \"drain\"` at a time at most",
                                     ge=0)] = 2


class Monitor(msgspec.Struct, frozen=True, kw_only=True):
    """``[monitor]``: read by the monitors; here only so that one file may hold all."""


class Cli(msgspec.Struct, frozen=True, kw_only=True):
    """``[cli]``: read by ``astraeus`` on hosts without the controller's socket: ``api``, such as
    http://slurmctl:6832."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All of it."""

    cluster: Annotated[str, _doc("the cluster's name; empty: Slurm's ClusterName")] = ""
    controller: Controller = Controller()
    trust: Trust = Trust()
    slurm: Slurm = Slurm()
    watch: Watch = Watch()
    partition: dict[str, dict[str, object]] = {}
    unwatched: Unwatched = Unwatched()
    restart: Restart = Restart()
    incidents: Incidents = Incidents()
    straggler: Straggler = Straggler()
    nodes: Nodes = Nodes()
    monitor: Monitor = Monitor()
    cli: Cli = Cli()

    def watch_for(self, partition: str) -> Watch:
        """``[watch]`` with the partition's own keys over it."""
        own = self.partition.get(partition)
        if not own:
            return self.watch
        return msgspec.convert(msgspec.to_builtins(self.watch) | own, Watch)

    def policy(self, partition: str, settings: Settings) -> Policy:
        """What holds for a run: its own options, else its partition's, else the site's."""
        site = self.watch_for(partition)
        return Policy(
            after=float(settings.stall_after or parse_seconds(site.stall_after)),
            action=settings.stall_action or site.stall_action,
            asked=settings.asked,
            mode=site.mode,
            max_restarts=site.max_restarts if settings.max_restarts is None else settings.max_restarts,
            stop_signal=settings.stop_signal or "TERM",
            stop_grace=settings.stop_grace,
            progress_metric=settings.progress_metric, progress_end=settings.progress_end,
            never_began=site.never_began,
            avoid_guilty=settings.avoid_guilty or site.avoid_guilty,
            straggler_metric=settings.straggler_metric,
            straggler_ratio=settings.straggler_ratio or self.straggler.ratio,
            warmup_s=self.straggler.warmup_s,
        )

    def rail_rates(self, partition: str, kinds: Iterable[str]) -> dict[str, float]:
        """Gb/s that rails of these classes are made for, of those of which the site says it."""
        site = [_rail_rate(text) for text in self.watch_for(partition).rail_rates]
        found = {kind: next((rate for glob, rate in site if fnmatch.fnmatchcase(kind, glob)), None) for kind in kinds}
        return {kind: rate for kind, rate in found.items() if rate is not None}
    @property
    def acts(self) -> bool:
        """Anything may be written into Slurm, in some partition at least."""
        return any(self.watch_for(name).mode == "act" for name in ("", *self.partition))

    def unwatched_by(self, *, partition: str, qos: str, account: str, job_name: str) -> str:
        """Which glob keeps such a job unwatched, as ``job_name *jupyter*``; "" where none does."""
        for field, value in (("partition", partition), ("qos", qos), ("account", account),
                             ("job_name", job_name)):
            for glob in getattr(self.unwatched, field):
                if fnmatch.fnmatchcase(value, glob):
                    return f"{field} {glob}"
        return ""


def _rail_rate(text: str) -> tuple[str, float]:
    """``CLASS=GB/S``. Raises ValueError."""
    glob, _, rate = text.rpartition("=")
    try:
        number = float(rate)
    except ValueError:
        number = 0.0
    if not glob or not 0 < number < 1e6:
        raise ValueError(f'rail_rates has "{text}"; write a class and what it is made for in Gb/s, such as '
                         '"MT4129/*/InfiniBand=400"')
    return glob.strip(), number


def parse(text: str, where: str = "the configuration") -> Config:
    """Config out of TOML text; ConfigFault with one sentence that names the key."""
    try:
        config = msgspec.convert(tomllib.loads(text), Config)
        for name in ("", *config.partition):
            watch = config.watch_for(name)
            for rate in watch.rail_rates:
                _rail_rate(rate)
            after = parse_seconds(watch.stall_after)
            if not STALL_AFTER_MIN <= after <= STALL_AFTER_MAX:
                raise ConfigFault(f"{where}: stall_after = {watch.stall_after!r} is out of range; "
                                  "write a time from 30s to 7d")
    except tomllib.TOMLDecodeError as fault:
        raise ConfigFault(f"{where} is no TOML: {fault}") from None
    except (msgspec.ValidationError, ValueError) as fault:
        raise ConfigFault(f"{where}: {fault}") from None
    return config


def load(path: Path = PATH) -> Config:
    """Config from the file; the defaults where there is none."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigFault(f"can't read {path}: {fault}") from None
