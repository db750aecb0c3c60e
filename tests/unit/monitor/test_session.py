"""The node's side of a session: how it proves itself, when, and what it does where that fails."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from pathlib import Path

import fake_munge
import pytest
from astraeus_monitor.config import Config
from astraeus_monitor.probes.children import Probes
from astraeus_monitor.talk.session import Session
from astraeus_protocol import hello

from .conftest import FakeClock


class Site:
    """A session with munge in a folder, and a loop that turns until something came about."""

    def __init__(self, folder: Path, **config: str) -> None:
        fake_munge.install(folder)
        self.folder, self.clock = folder, FakeClock()
        self.selector = selectors.DefaultSelector()
        self.probes = Probes(self.selector, self.clock)
        self.session = Session(Config(**{"munge": f"{folder}/munge", "key": f"{folder}/key", **config}),
                               self.probes, self.clock)

    def prove(self) -> str:
        """Why there is no proof; "" where there is one, or a key to go on with."""
        said: list[str] = []
        self.session.prove("c1", said.append)
        self.until(lambda: bool(said))
        return said[0]

    def until(self, holds: Callable[[], bool], seconds: float = 8) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it did not come about"
            for key, _ in self.selector.select(0.1):
                key.data()

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


def test_once_an_hour_and_no_fork_between(tmp_path: Path) -> None:
    site = Site(tmp_path)
    session = site.session
    assert session.due
    assert site.prove() == ""
    assert session.credential.startswith("MUNGE:")
    session.taken()
    assert (session.credential, session.due, session.key is None) == ("", False, False)
    site.clock.now += hello.KEPT_S - 1
    assert not session.due
    site.clock.now += 2
    assert session.due
    assert site.calls() == ["munge --restrict-uid=root --ttl=60"]


def test_the_key_is_in_the_credential_and_nowhere_else(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.prove()
    decoded = fake_munge.json.loads(fake_munge.base64.b64decode(site.session.credential[6:-1]))
    assert hello.read_payload(decoded["payload"]) == ("c1", decoded["payload"].split()[3], site.session.key)
    assert site.session.key is not None
    assert site.session.key.hex() not in "".join(site.calls())


def test_munged_is_dead(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    site = Site(tmp_path)
    (tmp_path / "dead").touch()
    assert "Failed to access" in site.prove()
    assert "see whether munged runs here" in capfd.readouterr().err
    assert site.session.due
    (tmp_path / "dead").unlink()
    assert site.prove() == ""
    site.session.taken()
    key = site.session.key
    (tmp_path / "dead").touch()
    site.clock.now += hello.KEPT_S + 1
    assert site.session.due
    assert site.prove() == "", "the old key goes on for another hour"
    assert (site.session.key, site.session.credential) == (key, "")
    assert not site.session.due, "and munge is not asked before each report"
    site.clock.now += 61
    assert site.session.due


def test_munge_that_hangs_or_is_not_there(tmp_path: Path) -> None:
    assert "can't be run" in Site(tmp_path, munge="/nowhere/munge").prove()
    hangs = tmp_path / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 60\n")
    hangs.chmod(0o755)
    assert "no answer before the deadline" in Site(tmp_path, munge=str(hangs)).prove()


def test_until_the_controller_took_it_the_old_key_is_kept(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.prove()
    site.session.taken()
    old = site.session.key
    assert site.session.refused(), "it has only forgotten the key: at once"
    site.prove()
    new = site.session.key
    assert new != old
    site.session.unheard()  # the reply was lost
    assert (site.session.key, site.session.credential, site.session.due) == (old, "", True)
    site.prove()
    assert not site.session.refused(), "a proof that is refused is not made again at once"


def test_shared_keys_rotate_without_a_gap(tmp_path: Path) -> None:
    old, new = b"o" * 40, b"n" * 40
    site = Site(tmp_path)
    (tmp_path / "key").write_bytes(old + b"\n# the next one\n" + new + b"\n")
    (tmp_path / "key").chmod(0o600)
    assert site.session.by_key()
    site.prove()
    assert hello.read_key(site.session.credential, [new]), "the newest signs"
    site.session.refused()  # the controller has the file before
    site.prove()
    found = hello.read_key(site.session.credential, [old])
    assert found
    assert (found[0], found[3]) == ("c1", site.session.key)
    site.session.taken()
    assert site.calls() == []
