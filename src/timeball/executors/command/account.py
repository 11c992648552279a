"""As whom a command runs, and the environment it finds: nothing of the instance's own."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from typing import Any

from timeball.executors.command.allowed import PATH_DEFAULT
from timeball.executors.command.target import CommandTarget

_OF_THE_HOST = ("LANG", "LC_ALL", "TZ")


class NoSuchAccount(Exception):
    """Why a command cannot run as its user, in words."""


def user_of(target: CommandTarget) -> list[Any] | None:
    """The user to change to, as [uid, gid, [groups]]; None for the instance's own. Raises NoSuchAccount."""
    if target.user is None:
        return None
    try:
        account = pwd.getpwnam(target.user)
    except KeyError:
        raise NoSuchAccount(f"there is no user {target.user!r} on this host") from None
    if account.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise NoSuchAccount(f"it cannot run as {target.user!r}: this instance does not run as root")
    return [account.pw_uid, account.pw_gid, os.getgrouplist(account.pw_name, account.pw_gid)]


def folder_of(target: CommandTarget) -> str:
    """Where it runs: as the target says, else where the instance does; another user in its home, where there is one."""
    if target.cwd is not None:
        return target.cwd
    if target.user is None:
        return os.getcwd()  # noqa: PTH109 - the text is all that is needed
    try:
        home = pwd.getpwnam(target.user).pw_dir
    except KeyError:
        return "/"
    return home if os.path.isdir(home) else "/"  # noqa: PTH112


def clean_environment(target: CommandTarget, run: Mapping[str, str]) -> dict[str, str]:
    """A fresh environment: nothing of the server's own, so none of its secrets; then the target's, then the run's."""
    try:
        account = pwd.getpwnam(target.user) if target.user else pwd.getpwuid(os.getuid())
        who = {"HOME": account.pw_dir, "LOGNAME": account.pw_name, "USER": account.pw_name}
    except KeyError:
        who = {"HOME": "/"}
    ours = {name: os.environ[name] for name in _OF_THE_HOST if name in os.environ}
    return {"PATH": PATH_DEFAULT, "SHELL": "/bin/sh", **who, **ours, **target.env, **run}
