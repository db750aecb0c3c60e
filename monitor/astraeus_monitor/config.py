"""The ``[monitor]`` table of /etc/astraeus/astraeus.toml: every key, its type, default, range and meaning."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from astraeus_protocol.settings import is_extended_regex

from .talk.address import split

PATH = Path("/etc/astraeus/astraeus.toml")


class Key(msgspec.Struct, frozen=True):
    """One key of the table. ``low`` and ``high`` bound numbers."""

    name: str
    kind: type
    default: object
    help: str
    low: float = 0
    high: float = 0


KEYS: tuple[Key, ...] = (
    Key("controller", str, "", 'where reports go, "http://HOST:PORT"'),
    Key("auth", str, "auto", 'how the node proves itself: "munge", "key" (the site\'s shared key, where Slurm uses '
        'auth/slurm), "auto" (key where the file is there, else munge)'),
    Key("key", str, "/etc/astraeus/report.key", "file of shared keys, one a line, the newest last; only root reads it"),
    Key("munge", str, "munge", "the program that makes MUNGE credentials"),
    Key("controller_user", str, "root", "the user that the controller was started as, to whom alone credentials are "
        "readable; a name that this node knows, or its number"),
    Key("interval_s", float, 15, "seconds between two looks at everything but the pulse", 5, 60),
    Key("pulse_s", float, 5, "seconds between two looks at process states and the pulse", 1, 15),
    Key("leave_after_s", float, 600, "seconds without work after which the monitor leaves; not under systemd",
        10, 86_400),
    Key("state_dir", str, "/run/astraeus", "where Prolog and the plugin write and the monitor reads"),
    Key("ignore_output", tuple, (), "lines of any job's output that are no progress: a list of regular expressions "
        "that grep -E takes"),
    Key("stacks", str, "auto", 'py-spy, which reads Python stacks of stuck jobs: "auto" (the one installed with the '
                               'monitor), "off", or its path'),
    Key("rails", tuple, (), "RDMA devices that carry the training's data: a list of globs such as mlx5_[0-7]; empty: "
        "one beside each GPU, else the node's commonest kind"),
    Key("rails_s", float, 60, "seconds between two looks at RDMA rails", 5, 120),
    Key("topology", str, "", "file that says what each rail should be wired to: lines NODE DEVICE PORT SWITCH "
        "SWITCH-PORT"),
    Key("topology_found", str, "", "file with such lines that the site's own discovery writes: what is wired"),
    Key("sysfs", str, "/sys", "where RDMA adapters are read, below class/infiniband"),
    Key("ras", bool, True, "ask NCCL's RAS of gangs that have gone quiet"),
    Key("ras_min_version", str, "2.29.2", "NCCL's version from which on it is asked; 2.26 never is, for a question may "
        "crash the run"),
    Key("ras_text", bool, False, "ask also where NCCL answers in text only (before 2.28.7)"),
    Key("node", str, "", "this node's name in Slurm; empty: as the jobs' files say, else the host's name"),
)
_WORDS = {str: "a text in quotes", float: "a number", bool: "true or false", tuple: "a list of texts in quotes"}


class ConfigFault(Exception):
    """The file can't be used as it is; the text says what to write instead."""


class Config(msgspec.Struct, frozen=True):
    """The table's values. Times in seconds."""

    controller: str = ""
    key: str = "/etc/astraeus/report.key"
    interval_s: float = 15
    pulse_s: float = 5
    leave_after_s: float = 600
    state_dir: str = "/run/astraeus"
    ignore_output: tuple[str, ...] = ()
    stacks: str = "auto"
    rails: tuple[str, ...] = ()
    rails_s: float = 60
    topology: str = ""
    topology_found: str = ""
    sysfs: str = "/sys"
    ras: bool = True
    ras_min_version: str = "2.29.2"
    ras_text: bool = False
    node: str = ""
    auth: str = "auto"
    munge: str = "munge"
    controller_user: str = "root"


def load(path: Path) -> Config:
    """Config from ``path``. Raises ConfigFault with one sentence."""
    import tomllib  # only while reading: the module costs 2.5 MB

    try:
        table = tomllib.loads(path.read_text()).get("monitor", {})
    except OSError as fault:
        raise ConfigFault(f"can't read {path}: {fault.strerror}; "
                          'write a [monitor] table with controller = "http://HOST:6831"') from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise ConfigFault(f"{path} is no TOML: {fault}") from None
    if not isinstance(table, dict):
        raise ConfigFault(f"{path}: monitor must be a table; write [monitor] and its keys below")
    return check(table, str(path))


def check(table: dict[str, object], where: str) -> Config:
    """Config from a parsed table. Raises ConfigFault for an unknown key, a wrong type or range."""
    known = {key.name: key for key in KEYS}
    values: dict[str, object] = {}
    for name, value in table.items():
        key = known.get(name)
        if key is None:
            raise ConfigFault(f"{where}: [monitor] has no key {name}; its keys are {', '.join(known)}")
        if key.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if key.kind is tuple and isinstance(value, list) and all(isinstance(one, str) for one in value):
            value = tuple(value)
        if not isinstance(value, key.kind):
            raise ConfigFault(f"{where}: {name} in [monitor] must be {_WORDS[key.kind]}: {key.help}")
        if isinstance(value, float) and not key.low <= value <= key.high:
            raise ConfigFault(f"{where}: {name} = {value:g} is out of range; "
                              f"write a number from {key.low:g} to {key.high:g}")
        for text in value if isinstance(value, tuple) else ():
            if name == "ignore_output" and (not text or not is_extended_regex(text)):
                raise ConfigFault(f'{where}: "{text}" in {name} is no regular expression; write one that grep -E takes')
        values[name] = value
    config = Config(**values)  # type: ignore[arg-type]
    if config.controller and not config.controller.startswith("http://"):
        raise ConfigFault(f'{where}: controller = "{config.controller}" must start with http:// '
                          "(reports are signed, not encrypted)")
    for name in ("topology", "topology_found", "sysfs"):
        value = getattr(config, name)
        if value and not value.startswith("/"):
            raise ConfigFault(f'{where}: {name} = "{value}" is no path; write one that begins with /')
    if config.auth not in ("auto", "munge", "key"):
        raise ConfigFault(f'{where}: auth = "{config.auth}" is no way to prove a node; write "auto", "munge" or "key"')
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}", config.controller_user):
        raise ConfigFault(f'{where}: controller_user = "{config.controller_user}" is no user; write a name or a '
                          'number, such as "root"')
    if config.stacks not in ("auto", "off") and not config.stacks.startswith("/"):
        raise ConfigFault(f'{where}: stacks = "{config.stacks}" is no path; write "auto", "off" or "/PATH/TO/py-spy"')
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){1,2}", config.ras_min_version):
        raise ConfigFault(f'{where}: ras_min_version = "{config.ras_min_version}" is no version; write one such as '
                          '"2.29.2"')
    host, port = split(config.controller)
    if config.controller and not (host and 0 < port < 65536):
        raise ConfigFault(f'{where}: controller = "{config.controller}" names no host and port; '
                          'write "http://HOST:6831"')
    return config
