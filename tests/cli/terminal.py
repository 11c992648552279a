"""The command line in this process: what it said, and how it ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from timeball.cli.main import main


class Terminal:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str, status: int = 0) -> str:
        self._monkeypatch.setattr("sys.argv", ["timeball", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        assert ended.value.code == status, f"{arguments}: {ended.value.code}: {out}{err}"
        return out + err

    def json(self, *arguments: str, status: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", status=status))


def add(timeball: Terminal, name: str = "hello", *more: str) -> None:
    timeball("jobs", "add", name, "--schedule", "0 9 * * mon-fri", *more, "--command", "--", "/bin/echo", "hi")
