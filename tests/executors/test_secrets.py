"""Secrets: where they come from, what is refused, and that no run leaves one behind, through real executors."""

from __future__ import annotations

import base64
import json
import logging
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executors.bench_of_work import FunctionTable, Outcomes, Registry, make_work, output_of
from timeball.errors import SecretError
from timeball.executors.capture import BoundedCapture
from timeball.executors.command.executor import CommandExecutor
from timeball.executors.function.executor import FunctionExecutor
from timeball.executors.redaction import Redactor
from timeball.executors.secrets import Revealed, Secrets
from timeball.model.run import Outcome
from timeball.model.states import State

TOKEN = "s3cr3t/Token+with=odd&signs"
Run = Callable[..., Outcome]


@pytest.fixture
def table() -> FunctionTable:
    return FunctionTable()


@pytest.fixture
def registry(table: FunctionTable) -> Iterator[Registry]:
    made = Registry(
        [
            FunctionExecutor(table, output_bytes_max=10_000, threads_max=2),
            CommandExecutor(allow=["*"], output_bytes_max=10_000, grace_seconds=1),
        ],
        Secrets(environ={"TIMEBALL_SECRET_TOKEN": TOKEN, "TIMEBALL_SECRET_PIN": "1234"}),
    )
    yield made
    made.close(1)


@pytest.fixture
def run(registry: Registry) -> Run:
    def call(executor: str, target: dict[str, Any], **args: Any) -> Outcome:
        outcomes, work = Outcomes(), make_work(executor, target, args=args)
        registry.submit([work], outcomes)
        return outcomes.wait(work)[0]

    return call


def everything(outcome: Outcome) -> str:
    return repr(outcome)


def test_a_secret_is_put_into_every_text_however_deep() -> None:
    secrets = Secrets(environ={"TIMEBALL_SECRET_A": "alpha", "TIMEBALL_SECRET_B.2": "beta"})
    value = {"x": ["${secret:A}", {"y": "<${secret:A} ${secret:B.2}>"}], "n": 1, "none": None}
    resolved = secrets.resolve(value)
    assert resolved.value == {"x": ["alpha", {"y": "<alpha beta>"}], "n": 1, "none": None}
    assert resolved.secrets == ("alpha", "beta")
    assert repr(resolved.value["x"][0]) == "'***'"
    assert not isinstance(resolved.value["n"], Revealed)


def test_two_dollars_stand_for_the_text_itself(registry: Registry) -> None:
    secrets = Secrets(environ={"TIMEBALL_SECRET_A": "alpha"})
    assert secrets.resolve("$${secret:A}") == ("${secret:A}", ())
    assert secrets.resolve(["$${secret:NOT THERE} ${secret:A}"]).value == ["${secret:NOT THERE} alpha"]
    assert secrets.check("$${secret:Z}") == ()
    outcomes, work = Outcomes(), make_work("command", {"argv": ["/bin/echo", "$${secret:TOKEN}"]})
    registry.submit([work], outcomes)
    assert output_of(outcomes.wait(work)[0], "stdout") == "${secret:TOKEN}\n"


def test_the_environment_comes_before_the_folder_and_a_file_is_read_anew(tmp_path: Path) -> None:
    secrets = Secrets(str(tmp_path), environ={"TIMEBALL_SECRET_A": "from environment"})
    (tmp_path / "A").write_text("from file")
    (tmp_path / "b-file").write_text("first\r\n")
    assert secrets.find("A") == "from environment"
    assert secrets.find("b-file") == "first"
    (tmp_path / "b-file").write_text("second")
    assert secrets.find("b-file") == "second"


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "..", ".hidden", "a/b", "a b", "x" * 101, "-rf", "ä"])
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    for use in (Secrets(str(tmp_path)).resolve, Secrets(str(tmp_path)).check):
        with pytest.raises(SecretError, match="not the name of a secret"):
            use(f"${{secret:{name}}}")


def test_what_cannot_be_used_is_refused_by_name_and_without_its_value(tmp_path: Path) -> None:
    (tmp_path / "SHORT").write_text("abc\n")
    (tmp_path / "BINARY").write_bytes(b"\xff\xfe\x00abcd")
    (tmp_path / "LONG").write_text("y" * 70_000)
    (tmp_path / "FOLDER").mkdir()
    secrets = Secrets(str(tmp_path), environ={})
    for name, words in {
        "SHORT": "fewer than 4",
        "BINARY": "not UTF-8",
        "LONG": "longer than 65536",
        "FOLDER": "cannot be read",
        "MISSING": "TIMEBALL_SECRET_MISSING or",
    }.items():
        with pytest.raises(SecretError, match=words) as caught:
            secrets.check({"argv": ["x", f"${{secret:{name}}}"]})
        assert name in str(caught.value)
        assert "abc" not in str(caught.value)
        assert "yyy" not in str(caught.value)


def test_a_process_without_secrets_refuses_none_and_says_which_it_does_not_know(tmp_path: Path) -> None:
    blind = Secrets(str(tmp_path / "not there"), environ={})
    assert blind.check(["${secret:A}", "${secret:B} ${secret:A}"]) == ("A", "B")
    seeing = Secrets(environ={"TIMEBALL_SECRET_OTHER": "other"})
    with pytest.raises(SecretError, match="no secret 'A' here"):
        seeing.check("${secret:A}")


def test_a_secret_that_everybody_may_read_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "OPEN").write_text("open to all")
    (tmp_path / "OPEN").chmod(0o644)
    (tmp_path / "CLOSED").write_text("closed")
    (tmp_path / "CLOSED").chmod(0o640)
    secrets = Secrets(str(tmp_path), environ={})
    with caplog.at_level(logging.WARNING, "timeball.executors"):
        for _ in range(3):
            secrets.find("OPEN")
            secrets.find("CLOSED")
    (line,) = caplog.messages
    assert "every user of this host" in line
    assert "OPEN" in line
    assert "open to all" not in line


def test_a_missing_secret_fails_the_run_in_words_without_starting(run: Run, tmp_path: Path) -> None:
    outcome = run("command", {"argv": ["/usr/bin/touch", str(tmp_path / "began"), "${secret:NOPE}"]})
    assert (outcome.state, outcome.reason) == (State.FAILED, "secret")
    assert "no secret 'NOPE' here" in (outcome.error or "")
    assert not (tmp_path / "began").exists()


def test_a_command_gets_its_secrets_and_leaves_none_in_its_output(run: Run) -> None:
    script = (
        "import os,sys,base64,json,urllib.parse as u; t=os.environ['T']; out=sys.stdout.write\n"
        "for c in t: out(c); sys.stdout.flush()\n"
        "out('|'+sys.argv[1]+'|'+u.quote(t,safe='')+'|'+base64.b64encode(t.encode()).decode()+'|'+json.dumps(t))\n"
        "sys.stderr.write('len %d %s' % (len(t), t)); sys.exit(3)"
    )
    target = {"argv": [sys.executable, "-c", script, "--token=${secret:TOKEN}"], "env": {"T": "${secret:TOKEN}"}}
    outcome = run("command", target)
    assert output_of(outcome, "stdout") == '***|--token=***|***|***|"***"'
    assert output_of(outcome, "stderr") == f"len {len(TOKEN)} ***"
    assert outcome.error == "exit code 3"


def test_a_functions_result_exception_and_log_are_without_the_secret(run: Run, table: FunctionTable) -> None:
    def returns(run: Any, token: str, pin: str) -> dict[str, Any]:
        assert type(token) is str
        run.log(f"using {token}")
        return {"token": f"<{token}>", token: 1, "number": int(pin), "near": [123, 5, None, True]}

    def raises(token: str) -> None:
        raise ValueError(f"bad token {token}")

    table.register("returns", returns)
    table.register("raises", raises)
    good = run("function", {"name": "returns"}, token="${secret:TOKEN}", pin="${secret:PIN}")
    assert json.loads(good.result or "") == {
        "token": "<***>",
        "***": 1,
        "number": "***",
        "near": [123, 5, None, True],
    }
    assert output_of(good, "log") == "using ***\n"
    bad = run("function", {"name": "raises"}, token="${secret:TOKEN}")
    assert bad.error == "ValueError: bad token ***"
    assert TOKEN not in everything(good) + everything(bad)


def test_a_refusal_after_the_secret_was_put_in_does_not_show_it(run: Run) -> None:
    outcome = run("command", {"argv": ["/bin/true"], "${secret:TOKEN}": 1, "cwd": "${secret:TOKEN}"})
    assert outcome.reason == "target"
    outcome = run("command", {"argv": ["/bin/true"], "success_codes": ["${secret:TOKEN}"]})
    assert outcome.reason == "target"
    assert TOKEN not in everything(outcome)


@pytest.mark.parametrize("seed", range(40))
def test_no_way_of_cutting_a_stream_lets_a_secret_through(seed: int) -> None:
    rng = random.Random(seed)
    secrets = ["abab", "ababac", "needle", "multi\nline-of-a-secret\nend"]
    plain = "".join(rng.choice(["ab", "a", "need", "x", "\n", "multi\n", *secrets]) for _ in range(60))
    redactor = Redactor(secrets)
    stream, data, out = redactor.stream(), plain.encode(), b""
    while data:
        size = rng.randint(1, 7)
        out += stream.feed(data[:size])
        data = data[size:]
    out += stream.flush()
    assert out.decode() == redactor.text(plain)
    assert not [secret for secret in secrets if secret in out.decode()]


def test_a_stream_holds_back_only_what_may_become_a_secret() -> None:
    stream = Redactor(["password-123"]).stream()
    assert stream.feed(b"a line\n") == b"a line\n"
    assert stream.feed(b"it is pass") == b"it is "
    assert stream.feed(b"able\n") == b"passable\n"
    assert stream.feed(b"password-12") == b""
    assert stream.feed(b"3!") == b"***!"
    assert stream.flush() == b""


def test_no_piece_of_a_secret_is_left_where_the_middle_was_left_out() -> None:
    secret = "0123456789abcdefghij"
    for before in range(30):
        capture = BoundedCapture(40)
        capture.add(b"." * before + secret.encode() + b"-" * 30 + secret.encode() + b"." * before)
        output = capture.output("stdout")
        assert output is not None
        outcome = Outcome(1, 1, 1, State.SUCCEEDED, 0, 0, outputs=(output,))
        text = Redactor([secret]).outcome(outcome).outputs[0].text
        assert not [at for at in range(17) if secret[at : at + 4] in text], text


def test_every_line_of_a_key_and_its_base64_are_hidden() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nshort\n-----END KEY-----\n"
    text = Redactor([key]).text(f"first MIIEvQIBADANBgkqhkiG, then {base64.b64encode(key.encode()).decode()} short")
    assert text == "first ***, then *** short"
