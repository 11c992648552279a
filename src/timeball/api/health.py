"""`/healthz` and `/readyz`: is the process alive, and does this instance do its work. Never "am I the leader"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from timeball.engine.engine import Health
from timeball.version import VERSION


def make_app(health: Callable[[], Health | None]) -> FastAPI:
    """The ASGI application of one instance."""
    app = FastAPI(title="Timeball", version=VERSION, docs_url=None, redoc_url=None)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok", "version": VERSION}

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        """200 when the database was reached lately and every loop passes, else 503 with the reasons."""
        now = health()
        if now is None:
            return JSONResponse({"status": "not ready", "problems": ["the instance is not running"]}, 503)
        body = {"status": "ok" if not now.problems else "not ready", **asdict(now)}
        return JSONResponse(body, 503 if now.problems else 200)

    return app
