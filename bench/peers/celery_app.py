"""Celery with Redis: a task runs the program as a process and stores its result.

    celery -A bench.peers.celery_app worker --pool threads --concurrency 16
    uvicorn bench.peers.celery_app:web

The task waits for a process, so a pool of threads fits. Like the daemon, it loses no accepted task:
acknowledgements are late, and Redis, at the address `BENCH_REDIS`, writes each change to the disk.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from fastapi import FastAPI, HTTPException

from bench.program import run_once

ADDRESS = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379/0")

app = Celery("bench", broker=ADDRESS, backend=ADDRESS)
app.conf.update(
    task_acks_late=True,
    task_track_started=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    result_expires=None,
)
web = FastAPI()


@app.task(name="run")
def run(words: list[str]) -> str:
    """Run the program and return its result."""
    return run_once(words)


@web.get("/status/{task_id}")
def status(task_id: str) -> dict[str, Any]:
    found = app.backend.get_task_meta(task_id)
    if found["status"] == "PENDING":  # Celery's status for an unknown id
        raise HTTPException(404, "no such execution")
    return {"state": found["status"], "result": found["result"]}
