"""Hiding secrets in what a run leaves: text, outcomes, streams that come in pieces. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast
from urllib.parse import quote, quote_plus

from timeball.executors.capture import cut_marker
from timeball.model.run import Outcome, Output

HIDDEN = "***"
LINE_CHARS_MIN = 8
"""Lines of a secret that are at least so long are hidden on their own too: output comes by lines."""
PART_CHARS_MIN = 3
"""So much of a secret is hidden where the middle of an output was left out."""


class Redactor:
    """Replaces secrets by `***`, also as JSON, in URLs, in base64, and line by line. Safe for threads."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _forms(secret) if form}
        self._forms = sorted(forms, key=len, reverse=True)  # the longest wins where one begins with another
        self._pattern = re.compile("|".join(map(re.escape, self._forms))) if self._forms else None

    def text(self, text: str) -> str:
        """A text without the secrets."""
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)

    def outcome(self, outcome: Outcome) -> Outcome:
        """An outcome whose error, result and outputs are without the secrets."""
        if self._pattern is None:
            return outcome
        return outcome._replace(
            error=None if outcome.error is None else self.text(outcome.error),
            result=None if outcome.result is None else self._json(outcome.result),
            outputs=tuple(map(self._output, outcome.outputs)),
        )

    def stream(self) -> RedactedStream:
        """A stream of bytes without the secrets, wherever it is cut into pieces."""
        return RedactedStream([form.encode() for form in self._forms])

    def _json(self, text: str) -> str:
        """A result stays JSON: a number that holds a secret becomes a text."""
        redacted = self.text(text)
        return text if redacted == text else json.dumps(self._value(json.loads(text)), ensure_ascii=False)

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {self.text(key): self._value(part) for key, part in items}
        if isinstance(value, list):
            return [self._value(part) for part in cast("list[Any]", value)]
        if isinstance(value, str):
            return self.text(value)
        written = json.dumps(value)
        return value if self.text(written) == written else HIDDEN

    def _output(self, output: Output) -> Output:
        head, marker, tail = output.text.partition(cut_marker(output.bytes_cut))
        head, tail = self.text(head), self.text(tail)
        if output.bytes_cut and marker:
            head = self._without_part(head, at_end=True)
            tail = self._without_part(tail, at_end=False)
        return Output(
            stream=output.stream,
            text=head + marker + tail,
            bytes_total=output.bytes_total,
            bytes_cut=output.bytes_cut,
        )

    def _without_part(self, text: str, *, at_end: bool) -> str:
        """A piece of a secret whose rest was left out."""
        longest = min(len(text), max(map(len, self._forms)) - 1)
        for size in range(longest, PART_CHARS_MIN - 1, -1):
            if at_end and any(form.startswith(text[-size:]) for form in self._forms):
                return text[:-size] + HIDDEN
            if not at_end and any(form.endswith(text[:size]) for form in self._forms):
                return HIDDEN + text[size:]
        return text


class RedactedStream:
    """Bytes in, bytes out; what may be the beginning of a secret is held back until more has come. One thread."""

    def __init__(self, forms: list[bytes]) -> None:
        """`forms`: what to hide, the longest first."""
        self._forms = forms
        self._pattern = re.compile(b"|".join(map(re.escape, forms))) if forms else None
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be shown by now."""
        if self._pattern is None:
            return data
        data = self._held + data
        begin = self._partial(data)
        out, at = bytearray(), 0
        for match in self._pattern.finditer(data):
            if match.start() >= begin:
                break
            out += data[at : match.start()] + HIDDEN.encode()
            at = match.end()
        begin = max(begin, at)
        self._held = data[begin:]
        return bytes(out + data[at:begin])

    def flush(self) -> bytes:
        """What was held back when the stream has ended."""
        rest, self._held = self._held, b""
        return rest if self._pattern is None else self._pattern.sub(HIDDEN.encode(), rest)

    def _partial(self, data: bytes) -> int:
        """Where at the end something begins that may become a secret, or a longer one; else the end."""
        for begin in range(max(0, len(data) - len(self._forms[0]) + 1), len(data)):
            part = data[begin:]
            if any(len(form) > len(part) and form.startswith(part) for form in self._forms):
                return begin
        return len(data)


def _forms(secret: str) -> Iterator[str]:
    """The secret, and how programs write it: stripped, escaped, encoded, line by line."""
    yield secret
    yield secret.strip()
    yield secret.replace("\r\n", "\n")
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield base64.b64encode(secret.encode()).decode()
    for line in secret.splitlines():
        if len(line.strip()) >= LINE_CHARS_MIN:
            yield line.strip()
