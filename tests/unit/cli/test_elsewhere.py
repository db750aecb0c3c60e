"""``astraeus`` on a host without the controller's socket: where it asks, and how it says who asks."""

from __future__ import annotations

from pathlib import Path

import fake_munge
import pytest
from astraeus_cli import client, credential
from astraeus_cli import main as cli


@pytest.fixture(autouse=True)
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket, no settings, no munge."""
    for name in ("ASTRAEUS_SOCKET", "ASTRAEUS_API"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(client, "SOCKET", str(tmp_path / "api.sock"))
    monkeypatch.setattr(client, "SETTINGS", tmp_path / "astraeus.toml")
    monkeypatch.setenv("PATH", str(tmp_path / "munge"))


def test_where_it_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.place() == client.SOCKET
    for rubbish in ("x =", "[cli]\napi = 1", "cli = 1"):
        (tmp_path / "astraeus.toml").write_text(rubbish)
        assert client.place() == client.SOCKET
    (tmp_path / "astraeus.toml").write_text('[cli]\napi = "http://ctl:6832"')
    assert client.place() == "http://ctl:6832"
    (tmp_path / "api.sock").touch()
    assert client.place() == client.SOCKET, "where there is one it needs no munge"
    monkeypatch.setenv("ASTRAEUS_API", "http://other")
    assert client.place() == "http://other"
    assert client.place("http://third") == "http://third"


def test_a_credential_is_for_one_request(tmp_path: Path) -> None:
    fake_munge.install(tmp_path / "munge", uid=1001)
    kind, _, made = credential.authorization("POST", "/token").partition(" ")
    said = fake_munge.json.loads(fake_munge.base64.b64decode(made[6:-1]))
    assert (kind, said["payload"]) == ("MUNGE", "astraeus-api 1 POST /token")
    assert (tmp_path / "munge" / "calls").read_text() == "munge --restrict-uid=0 --ttl=60\n"


def test_without_munge_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stalls", "--socket", "http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == ("astraeus: can't run munge, which says to the controller who you are: No such "
                                       "file or directory\n")
    fake_munge.install(tmp_path / "munge")
    (tmp_path / "munge" / "dead").touch()
    assert cli.main(["token", "--socket", "http://127.0.0.1:1"]) == 1
    assert "munge makes no credential: munge: Error: Failed to access" in capsys.readouterr().err
    assert cli.main(["token", "--socket", "http://"]) == 1
    assert "names no host; write http://HOST:6832" in capsys.readouterr().err
