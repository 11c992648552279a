"""What the operator lets run here, and which file that is. Looks at the file system, changes nothing."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
from dataclasses import dataclass

from timeball.errors import TargetError
from timeball.executors.command.target import CommandTarget

PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EVERYTHING = "*"
_LOADS_CODE = re.compile(r"LD_.*|DYLD_.*|BASH_ENV|ENV|GCONV_PATH|BASH_FUNC_.*")
"""Variables by which one executable is made to run another's code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """`patterns`: of absolute paths (`/srv/jobs/*`), bare names as the default path finds them, or `*` for all.

    `shell`: whether a job may give a text to /bin/sh.
    """

    patterns: tuple[str, ...]
    shell: bool = False

    @property
    def anything(self) -> bool:
        """Whether any command at all may run here."""
        return bool(self.patterns) or self.shell

    def check(self, target: CommandTarget) -> str | None:
        """The path of the file that is to run, None when there is none. Raises TargetError when it is not allowed."""
        if not self.anything:
            raise TargetError(
                "commands are off on this instance",
                hint="the setting command_allow lists the executables that may run; '*' allows all",
                field="target",
            )
        if target.shell:
            self._check_shell()
        elif EVERYTHING not in self.patterns:
            return self._listed(target)
        return find_executable(target)

    def _check_shell(self) -> None:
        if not self.shell:
            raise TargetError(
                "a text for the shell may not run here",
                hint="the setting command_shell_allow = true lets it; without a shell, argv is a list",
                field="target.shell",
            )

    def _listed(self, target: CommandTarget) -> str:
        loads = sorted(name for name in target.env if _LOADS_CODE.fullmatch(name))
        if loads:
            raise TargetError(
                f"env: {loads[0]!r} may not be set here, it makes an executable run other code",
                hint=f"command_allow is a list: {', '.join(self.patterns)}",
                field="target.env",
            )
        resolved = find_executable(target)
        for name in (resolved, os.path.realpath(resolved)) if resolved else ():
            if any(_matches(name, pattern) for pattern in self.patterns):
                return name  # not the link that leads there, which could lead elsewhere a moment later
        raise TargetError(
            f"{target.argv[0]!r} may not run here",
            hint=f"the setting command_allow lists {', '.join(self.patterns) or 'no executable'}",
            field="target.argv",
        )


def find_executable(target: CommandTarget) -> str | None:
    """The absolute path that is to run; None when there is none. What is checked is what runs."""
    name, folder = target.full_argv[0], target.cwd or os.getcwd()  # noqa: PTH109 - no links resolved
    if "/" not in name:
        found = shutil.which(name, path=target.env.get("PATH", PATH_DEFAULT))
        if found is None:
            return None
        name = found
    return os.path.normpath(os.path.join(folder, name))  # noqa: PTH118 - no links resolved


def lies_there(target: CommandTarget) -> str | None:
    """A file of the executable's name on its path that is not executable, or None."""
    name = target.argv[0]
    for folder in target.env.get("PATH", PATH_DEFAULT).split(os.pathsep):
        path = os.path.join(folder, name)  # noqa: PTH118 - as the path says it
        if "/" not in name and os.path.isfile(path):  # noqa: PTH113
            return path
    return None


def _matches(name: str, pattern: str) -> bool:
    if "/" in pattern:
        return fnmatch.fnmatchcase(name, pattern)
    return shutil.which(pattern, path=PATH_DEFAULT) == name
