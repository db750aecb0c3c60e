"""The image's build context as one tar archive: cluster/, wheelhouse/ and source/ (see the Dockerfile)."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE.parent

# What `make install` does not look at: a change there must not rebuild the project's layer.
NOT_SOURCE = (".git", ".ci", ".venv", ".github", "slurm-test-cluster", "tests", "docs", "examples")
IGNORED_NAMES = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "build", "dist"}


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if IGNORED_NAMES.intersection(inside) or path.suffix in (".pyc", ".so", ".o"):
            continue
        if any(part.endswith(".egg-info") for part in inside) or not path.is_file():
            continue
        yield path


def source_files(root: Path = ROOT) -> list[Path]:
    """The project's own files: what git tracks or would track; every file where there is no git."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-coz", "--exclude-standard"], capture_output=True, check=False
    )
    if listed.returncode:
        files = list(_walk(root))
    else:
        files = [root / os.fsdecode(name) for name in sorted(listed.stdout.split(b"\0")) if name]
    kept = []
    for path in files:
        parts = path.relative_to(root).parts
        if parts[0] in NOT_SOURCE or any(part.endswith(".egg-info") for part in parts):
            continue
        if IGNORED_NAMES.intersection(parts) or path.suffix in (".pyc", ".so", ".o") or not path.is_file():
            continue
        kept.append(path)
    return kept


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    info = archive.gettarinfo(str(path), name)
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    with path.open("rb") as file:
        archive.addfile(info, file)


def build_context(wheelhouse: Path) -> io.BytesIO:
    """The archive for Docker's build call."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        _add(archive, HERE / "Dockerfile", "Dockerfile")
        for folder in ("image", "fake-nvml", "storefs", "workloads"):
            for path in _walk(HERE / folder):
                _add(archive, path, f"cluster/{path.relative_to(HERE)}")
        for path in sorted(wheelhouse.iterdir()):
            _add(archive, path, f"wheelhouse/{path.name}")
        for path in source_files():
            _add(archive, path, f"source/{path.relative_to(ROOT)}")
    out.seek(0)
    return out
