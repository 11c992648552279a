"""Keeping the head and the tail of a stream within a bound. Owns bytes; knows nothing of where they come from."""

from __future__ import annotations

from timeball.model.run import Output

_HARMLESS = {code: f"\\x{code:02x}" for code in [*range(32), 127] if chr(code) not in "\n\t"}


def cut_marker(bytes_cut: int) -> str:
    """What stands in the place of the middle that was left out."""
    return f"\n... {bytes_cut} bytes left out ...\n"


class BoundedCapture:
    """A stream of any length in at most `bytes_max` bytes of memory: head and tail kept, the middle counted."""

    def __init__(self, bytes_max: int) -> None:
        self._head_max = bytes_max // 2
        self._tail_max = bytes_max - self._head_max
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self._total += len(data)
        room = self._head_max - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-self._tail_max :]
            if len(self._tail) > self._tail_max:
                del self._tail[: len(self._tail) - self._tail_max]

    def output(self, stream: str) -> Output | None:
        """What was kept, as text (UTF-8, what is not becomes U+FFFD; control characters made visible), or None."""
        if not self._total:
            return None
        cut = self._total - len(self._head) - len(self._tail)
        if cut:
            text = self._head.decode("utf-8", "replace") + cut_marker(cut) + self._tail.decode("utf-8", "replace")
        else:
            text = (self._head + self._tail).decode("utf-8", "replace")
        return Output(
            stream=stream, text=text.replace("\r\n", "\n").translate(_HARMLESS), bytes_total=self._total, bytes_cut=cut
        )


def harmless(text: str) -> str:
    """One line of text that every database and terminal takes: control characters and half pairs made visible."""
    return text.encode("utf-8", "backslashreplace").decode().translate(_HARMLESS).replace("\n", " ")
