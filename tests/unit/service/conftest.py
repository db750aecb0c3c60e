"""Runs ``async def`` tests, each in a loop of its own, with a deadline."""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path

import pytest
from astraeus_controller.fleet import state

sys.path.insert(0, str(Path(__file__).parent))
DEADLINE_S = 60


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), DEADLINE_S))
    return True


@pytest.fixture(autouse=True)
def _settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that has reported once has been heard for long enough: these tests send one report."""
    monkeypatch.setattr(state, "SETTLED_S", 0.0)
