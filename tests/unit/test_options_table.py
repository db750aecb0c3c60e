"""The plugin's table and checks are those of astraeus_protocol.settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from astraeus_protocol.settings import BY_KEY, OPTIONS, TEXT_MAX, parse_option, settings_from
from spank_host import SPANK, play

# The order of enum kind in spank/parse.h.
KINDS = ("time", "flag", "choice", "metric", "number", "ratio", "port", "count", "path", "regex", "signal")

VALUES: dict[str, list[str]] = {
    "time": ["30s", "29s", "5s", "900", "0", "abc", "", "15m", "2h", "1d", "7d", "8d", "604800s", "604801s",
             "1h30m", "1d2h3m4s", "1m1h", "1h1h", "90", "00:01:00", "1-00:00:00", "6-23:59:60", "7-00:00:01",
             "0:0:45", "0:0:100", "1:2", "-5s", " 60s", "60s ", "60S", "1.5h", "١٢s", "60s\n", "9" * 30,
             "9" * 30 + "d", "9" * 30 + "-00:00:00", "--stall", "d", "5", "1d2h3m4s5", "9" * 100],
    "flag": ["", "(null)"],
    "choice": ["alert", "restart", "Alert", "", "kill", "alert|restart", "ale", "alertx"],
    "metric": ["loss", "train:steps_total", "_x", ":x", "1x", "", "a b", "a-b", "é", "x" * 200, "x" * 201],
    "number": ["0", "1000", "-1.5", "+2", ".5", "5.", ".", "1e5", "1e-5", "1e", "1e999", "nan", "inf",
               "0x10", "1_000", " 1", "", "1,5", "1" * 64, "1" * 65, "e5", "--1"],
    "ratio": ["1.2", "0.9", "1.01", "1.0099", "10", "10.0001", "abc", "", "1e1", "nan", "2"],
    "port": ["1", "0", "65535", "65536", "8080", "-1", "+1", "abc", "", "00080", "1" * 65, "80.5", "８０"],
    "count": ["0", "10", "100", "101", "-1", "", "1e1", "ten", "007"],
    "path": ["/tmp/m.prom", "", "relative", "/a b/ü%j=|\n", "x" * 200, "x" * 201, " " * 66, " " * 67, "\udcff"],
    "regex": ["^step", "", "a(", "a)", "[", "a|b", "(foo|bar)+ [0-9]{1,3}%$", "a{2,1}", "x" * 200, "x" * 201,
              "größe", "\\"],
    "signal": ["TERM", "SIGTERM", "sigusr1", "usr1", "USR1@5m", "USR1@300s", "USR1@900", "USR1@0s", "USR1@1h",
               "USR1@3601s", "USR1@", "USR1@x", "KILL", "STOP", "9", "15", "", "SIG", "@5m", "TERM@1m@2m",
               "ﬁ", "SIGSIGTERM", "WINCH@1-00:00:00"],
}


def test_table_is_the_settings_table() -> None:
    answers = play([("context", "allocator"), ("call", "slurm_spank_init"), ("show-options",)])
    assert len(answers.rows) == len(OPTIONS)
    for row, option in zip(answers.rows, OPTIONS, strict=True):
        name, kind, has_arg, low, high, asks, argument, usage = row
        assert name == option.name
        assert KINDS[int(kind)] == option.kind
        assert argument == option.argument
        assert has_arg == ("0" if option.kind == "flag" else "1")
        assert (float(low), float(high)) == (option.low, option.high)
        assert asks == str(int(option.asks))
        assert usage == f"[astraeus] {option.help}"
        if option.choices:
            assert argument == "|".join(option.choices)


def test_text_limit_is_the_same() -> None:
    found = re.search(r"#define TEXT_MAX (\d+)", (SPANK / "parse.h").read_text())
    assert found
    assert int(found[1]) == TEXT_MAX


def test_version_is_the_package_s() -> None:
    project = Path(SPANK.parent / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"', project, re.M)
    assert version
    assert f'#define ASTRAEUS_VERSION "{version[1]}"' in (SPANK / "options.h").read_text()
    prolog = SPANK.parent / "prolog" / "prolog.d" / "10-astraeus.sh"
    assert f"\nVERSION={version[1]}\n" in prolog.read_text()


def python_says(name: str, text: str) -> tuple[str, str]:
    try:
        return "value", parse_option(name, text)
    except ValueError as bad:
        return "reason", str(bad).split(": ", 1)[1]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_plugin_and_python_agree(option) -> None:
    texts = VALUES[option.kind]
    answers = play([("context", "allocator"), ("call", "slurm_spank_init"),
                    *(("parse", option.name, text) for text in texts)])
    expected = [python_says(option.name, text) for text in texts]
    assert list(zip(texts, answers.parsed, strict=True)) == list(zip(texts, expected, strict=True))


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_canonical_values_are_read_back(option) -> None:
    """What the plugin hands on, the monitor and the controller understand."""
    for text in VALUES[option.kind]:
        word, value = python_says(option.name, text)
        if word == "reason":
            continue
        settings = settings_from({option.key: value})
        assert settings != settings_from({}), (text, value)
        assert settings.asked == BY_KEY[option.key].asks
        assert "\n" not in value
        assert " " not in value


@pytest.mark.parametrize(("name", "text", "sentence"), [
    ("stall-after", "900", "--stall-after=900: a bare number is not taken (Slurm would read it as minutes); "
                           "write 900s or 900m"),
    ("stall-after", "5s", "--stall-after=5s: out of range; write a time from 30s to 7d"),
    ("stall-after", "8d", "--stall-after=8d: out of range; write a time from 30s to 7d"),
    ("stall-after", "abc", "--stall-after=abc: not a time; write 90s, 15m, 2h, 1d, 1h30m or HH:MM:SS"),
    ("straggler-ratio", "0.9", "--straggler-ratio=0.9: write a number from 1.01 to 10"),
    ("metrics-port", "0", "--metrics-port=0: write a port from 1 to 65535"),
    ("stop-signal", "TERM@2h", "--stop-signal=TERM@2h: out of range; write a grace from 1s to 1h"),
])
def test_sentences(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_option(name, text)


def test_a_steps_zero_goes_over_its_jobs_number() -> None:
    job, step = settings_from({"max_restarts": "5", "progress_end": "9"}), settings_from({"max_restarts": "0"})
    assert step.over(job).max_restarts == 0
    assert settings_from({"progress_end": "0"}).over(job).progress_end == 0
    assert step.over(job).progress_end == 9
    assert settings_from({"max_restarts": "0"}).over(settings_from({})).max_restarts == 0
