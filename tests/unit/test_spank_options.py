"""sbatch, srun and salloc: what is typed is checked at once, refused in one sentence, or handed on."""

from __future__ import annotations

import subprocess

import pytest
from astraeus_protocol.settings import OPTIONS
from spank_host import built, play, typed

INHERITED = "SLURM_SPANK__SLURM_SPANK_OPTION_astraeus_"


@pytest.mark.parametrize("context", ["allocator", "local"])
def test_values_are_handed_on_in_canonical_form(context: str) -> None:
    answers = typed(("stall-after", "15m"), ("restart-stalled",), ("stop-signal", "sigusr1@5m"),
                    ("metrics-file", "/tmp/a b"), ("ignore-output", "^warn|%$"), context=context)
    assert answers.control == {
        "ASTRAEUS_STALL_AFTER": "900",
        "ASTRAEUS_RESTART_STALLED": "1",
        "ASTRAEUS_STOP_SIGNAL": "USR1@300",
        "ASTRAEUS_METRICS_FILE": "/tmp/a%20b",
        "ASTRAEUS_IGNORE_OUTPUT": "%5Ewarn%7C%25%24",
        "ASTRAEUS_PLUGIN": "0.1.0",
    }
    assert answers.errors == []


def test_the_last_one_wins() -> None:
    assert typed(("stall-after", "15m"), ("stall-after", "1h")).control["ASTRAEUS_STALL_AFTER"] == "3600"


def test_without_options_only_the_plugin_is_named() -> None:
    assert typed().control == {"ASTRAEUS_PLUGIN": "0.1.0"}


def test_an_srun_inside_a_job_needs_no_job_control() -> None:
    answers = typed(("stall-after", "15m"), context="local", environment={"SLURM_JOB_ID": "7"})
    assert answers.control == {}


@pytest.mark.parametrize(("option", "text"), [
    ("stall-after", "abc"), ("stall-after", "900"), ("stall-after", "5s"), ("stall-after", "8d"),
    ("straggler-ratio", "0.9"), ("metrics-port", "0"), ("stop-signal", "KILL"), ("max-restarts", "101"),
    ("stall-action", "kill"), ("progress-metric", "1x"), ("ignore-output", "a("), ("metrics-file", ""),
])
@pytest.mark.parametrize("context", ["allocator", "local"])
def test_a_bad_value_is_refused_with_one_sentence(context: str, option: str, text: str) -> None:
    answers = typed((option, text), context=context)
    assert answers.options == [(option, -1)]
    assert len(answers.errors) == 1
    assert answers.errors[0].startswith(f"--{option}={text}: ")
    assert "\n" not in answers.errors[0]


def test_what_is_shown_of_a_value_is_short_and_printable() -> None:
    error = typed(("stall-after", "\x1b[2J\n" + "x" * 500)).errors[0]
    assert error.startswith("--stall-after=?[2J?xxx")
    assert len(error) < 160


OFF_AND_AFTER = "--stall-after and --no-stall-watch contradict each other; leave one of them out"
RESTART_AND_ALERT = "--restart-stalled and --stall-action=alert contradict each other; leave one of them out"


@pytest.mark.parametrize(("options", "sentence"), [
    ([("no-stall-watch",), ("stall-after", "1h")], OFF_AND_AFTER),
    ([("stall-after", "1h"), ("no-stall-watch",)], OFF_AND_AFTER),
    ([("restart-stalled",), ("stall-action", "alert")], RESTART_AND_ALERT),
    ([("stall-action", "alert"), ("restart-stalled",)], RESTART_AND_ALERT),
])
def test_contradictions_are_refused_in_either_order(options, sentence: str) -> None:
    answers = typed(*options)
    assert answers.rejected
    assert answers.errors == [sentence]


def test_agreeing_words_are_taken() -> None:
    answers = typed(("restart-stalled",), ("stall-action", "restart"))
    assert not answers.rejected
    assert answers.control["ASTRAEUS_STALL_ACTION"] == "restart"


@pytest.mark.parametrize("order", [1, -1])
def test_an_inherited_value_is_no_contradiction(order: int) -> None:
    """sbatch --stall-after=60s, then srun --no-stall-watch inside it."""
    options = [("stall-after", "60s"), ("no-stall-watch",)][::order]
    environment = {"SLURM_JOB_ID": "7", INHERITED + "stall_after": "60s"}
    answers = typed(*options, context="local", environment=environment)
    assert not answers.rejected
    assert answers.errors == []


def test_another_value_than_the_inherited_one_is_typed() -> None:
    environment = {"SLURM_JOB_ID": "7", INHERITED + "stall_after": "60s"}
    answers = typed(("stall-after", "90s"), ("no-stall-watch",), context="local", environment=environment)
    assert answers.errors == [OFF_AND_AFTER]


def test_an_sbatch_inside_a_job_goes_over_what_it_inherits() -> None:
    environment = {"SLURM_JOB_ID": "7", INHERITED + "no_stall_watch": "(null)",
                   INHERITED + "restart_stalled": "(null)"}
    answers = typed(("no-stall-watch",), ("restart-stalled",), ("stall-after", "60s"),
                    ("stall-action", "alert"), environment=environment)
    assert answers.control == {"ASTRAEUS_STALL_AFTER": "60", "ASTRAEUS_STALL_ACTION": "alert",
                               "ASTRAEUS_PLUGIN": "0.1.0"}


def test_an_sbatch_inside_a_watched_job_may_say_no() -> None:
    environment = {"SLURM_JOB_ID": "7", INHERITED + "stall_after": "60s"}
    answers = typed(("stall-after", "60s"), ("no-stall-watch",), environment=environment)
    assert answers.control == {"ASTRAEUS_NO_STALL_WATCH": "1", "ASTRAEUS_PLUGIN": "0.1.0"}


def test_every_context_takes_every_option() -> None:
    for context in ("local", "allocator", "remote", "slurmd"):
        answers = play([("context", context), ("call", "slurm_spank_init"), ("show-options",)])
        assert [row[0] for row in answers.rows] == [option.name for option in OPTIONS]


def test_only_slurm_s_symbols_are_exported() -> None:
    library = built(testing=False) / "astraeus.so"
    out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in out.stdout.splitlines()}
    hooks = {name for name in names if name.startswith("slurm_spank_")}
    assert names - hooks == {"plugin_name", "plugin_type", "plugin_version", "spank_plugin_version"}
    assert not {"slurm_spank_job_prolog", "slurm_spank_job_epilog"} & hooks
    assert "slurm_spank_init_post_opt" in hooks


def test_the_real_build_takes_no_path_from_the_environment() -> None:
    content = (built(testing=False) / "astraeus.so").read_bytes()
    assert b"ASTRAEUS_STATE_DIR" not in content
    assert b"ASTRAEUS_START_MONITOR" not in content
    assert b"/run/astraeus" in content


def test_the_build_is_hardened() -> None:
    library = built(testing=False) / "astraeus.so"
    out = subprocess.run(["readelf", "-d", "-l", library], capture_output=True, text=True, check=True).stdout
    assert "GNU_RELRO" in out
    assert "BIND_NOW" in out or "NOW" in out
    assert "__stack_chk_fail" in subprocess.run(["nm", "-D", library], capture_output=True, text=True,
                                                check=True).stdout
