"""What is in a Comment already stays byte for byte; other tools' fields are left alone."""

from __future__ import annotations

import re

import pytest
from slurm_test_cluster import wait_for

from .conftest import Site

COMMENTS = {
    "json": '{"tool": "other", "n": 1}',
    "newline": "first line\nsecond | line",
    "long": "x" * 1_000,
    "emoji": "run \U0001f680 für Ünïcode",
    "forged": "[astraeus: stalled since 00:00, rank 0 on nowhere, restarted 9/10]",
    "unterminated": "see [astraeus: docs",
}


@pytest.mark.parametrize("name", COMMENTS)
def test_comment_is_kept(site: Site, name: str) -> None:
    own = COMMENTS[name]
    job = site.submit("sleep 600\n", "-n1", "--stall-after=30s", "-o", "/home/alice/out-%j.txt", f"--comment={own}")
    site.wait_finding("stalled", job, timeout=120)
    if name in ("json", "long"):  # Slurm takes 1,024 bytes of Comment: our piece does not fit beside 1,000
        site.wait_event(job, "annotation_skipped", timeout=20)
        assert site.comment(job) == own
    else:
        comment = wait_for(lambda: site.comment(job) != own and site.comment(job), 20, what="our piece",
                           saw=lambda: site.comment(job)[-200:])
        assert comment.startswith(own + " [astraeus: ")
        piece = comment[len(own) + 1:]
        assert piece.endswith("]")
        assert len(piece.encode()) <= 400
        assert piece.isascii()
        assert "|" not in piece
        assert "\n" not in piece
    assert "[astraeus: " in wait_for(lambda: site.admin_comment(job), 20, what="AdminComment")
    site.cluster.run("ctl", ["scancel", str(job)])

    def closed() -> bool:
        admin = site.rows(job, "AdminComment")[-1]["AdminComment"]
        return admin.count("[astraeus: stalled ") == 1 and re.search(r"stalled \d\d:\d\d-\d\d:\d\d", admin) is not None
    wait_for(closed, 60, every=2, what="the closing piece in accounting", saw=lambda: site.rows(job, "AdminComment"))


def test_admin_comment_of_64_kib_is_kept(site: Site) -> None:
    job = site.submit("sleep 600\n", "-n1", "--stall-after=30s", "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    own = "ops: " + "y" * 64_000 + " \U0001f680 | end"
    site.cluster.copy_in("ctl", f"/root/{job}.txt", own)
    site.cluster.run("ctl", f'scontrol update jobid={job} admincomment="$(cat /root/{job}.txt)"', check=True)
    site.wait_finding("stalled", job, timeout=120)
    admin = wait_for(lambda: "[astraeus: " in site.admin_comment(job) and site.admin_comment(job), 20, what="our piece",
                     saw=lambda: site.admin_comment(job)[-300:])
    assert admin.startswith(own + " [astraeus: stalled ")
    site.cluster.run("ctl", ["scancel", str(job)])
