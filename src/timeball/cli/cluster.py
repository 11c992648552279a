"""`timeball cluster …`."""

from __future__ import annotations

import click

from timeball.cli.context import Context, common, table
from timeball.cli.views import short_instant
from timeball.clock import format_instant
from timeball.model.cluster import Instance
from timeball.service.cluster import ClusterStatus, cluster_status


@click.group(name="cluster")
def command() -> None:
    """Who takes part and who leads."""


@command.command()
@common
def status(context: Context) -> None:
    """Show the members by the database's clock, who leads since when, and the last changes."""
    now = cluster_status(context.parts.store, context.settings.namespace)
    context.show(_document(now), lambda: _people(now))


def _document(now: ClusterStatus) -> dict[str, object]:
    lease = now.lease
    return {
        "now": format_instant(now.now),
        "lease": {
            "holder": lease.holder,
            "leader": now.leader.name if now.leader else None,
            "valid": lease.valid,
            "epoch": lease.epoch,
            "since": format_instant(lease.acquired_at),
            "expires_at": format_instant(lease.expires_at),
        },
        "instances": [_instance(i, now) for i in now.instances],
        "gone": [_instance(i, now) for i in now.gone],
        "changes": [
            {"at": format_instant(e.at), "kind": e.kind, "actor": e.actor, **e.data}
            for e in sorted(now.changes, key=lambda e: -e.id)
        ],
    }


def _instance(i: Instance, now: ClusterStatus) -> dict[str, object]:
    return {
        "id": i.id,
        "name": i.name,
        "host": i.host,
        "pid": i.pid,
        "version": i.version,
        "state": i.state.value,
        "leads": now.leader is not None and now.leader.id == i.id,
        "execute": i.execute,
        "labels": dict(i.labels),
        "handlers": list(i.handlers),
        "started_at": format_instant(i.started_at),
        "heartbeat_at": format_instant(i.heartbeat_at),
        "heartbeat_age_ms": (now.now - i.heartbeat_at) / 1000,
    }


def _people(now: ClusterStatus) -> None:
    lease = now.lease
    if now.leader is not None:
        since = short_instant(lease.acquired_at)
        click.echo(
            f"{now.leader.name} leads since {since}, epoch {lease.epoch}, lease until {short_instant(lease.expires_at)}"
        )
    else:
        click.echo(f"nobody leads (last epoch {lease.epoch})")
    rows = [
        (
            i.name,
            i.state.value,
            i.host,
            i.pid,
            short_instant(i.started_at),
            f"{(now.now - i.heartbeat_at) / 1e6:.1f} s",
        )
        for i in now.instances
    ]
    table(
        ("INSTANCE", "STATE", "HOST", "PID", "UP SINCE (UTC)", "LAST HEARTBEAT"),
        rows,
        empty="no instance is up",
    )
