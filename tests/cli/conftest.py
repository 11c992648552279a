"""Fixtures of the command line's tests."""

from __future__ import annotations

import pytest

from tests.cli.terminal import Terminal


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMEBALL_COMMAND_ALLOW", "*")


@pytest.fixture
def timeball(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)
