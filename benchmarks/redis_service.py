"""A small service in FastAPI that appends to Redis streams: what many a team writes itself.

It takes the same two requests as our door, so that the same client measures both.
"""

import json
import os
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel
from redis.asyncio import Redis

app = FastAPI()
redis = Redis(port=int(os.environ.get("REDIS_PORT", "6379")))


class NewRecord(BaseModel):
    value: Any
    key: str | None = None


class NewRecords(BaseModel):
    records: list[NewRecord]


@app.post("/v1/topics/single/records")
async def publish(body: NewRecords) -> dict[str, list[str]]:
    ids = [
        await redis.xadd("single", {"value": json.dumps(record.value)}) for record in body.records
    ]
    return {"results": [each.decode() for each in ids]}


@app.post("/v1/topics/lines/records")
async def publish_lines(request: Request) -> dict[str, int]:
    body = await request.body()
    async with redis.pipeline(transaction=False) as pipeline:
        for line in body.split(b"\n"):
            pipeline.xadd("lines", {"value": json.dumps(json.loads(line)["value"])})
        ids = await pipeline.execute()
    return {"count": len(ids)}
