"""A consumer in a process of its own, to be killed.

    python -m tests.integration.topics.worker '{"topics": …, "topic": …, "group": …, "log": …, "commits": …}'

Each message that it handled is a line of the log, `partition key value`, and another one with `committed`
before it once that is so; what it commits stands there
already. Without `commits` it only says what it was handed out, and keeps it.
"""

from __future__ import annotations

import json
import os
import sys

from app.adapters import logs, topics
from app.kernel import errors
from app.kernel.clock import SystemClock


def main() -> None:
    """Until it is killed."""
    asked = json.loads(sys.argv[1])
    logs.configure("worker")
    engine = topics.connect(topics.Topics(**asked["topics"]), SystemClock())
    consumer = engine.consumer(asked["topic"], group=asked["group"])
    # One write a line, at the end: several workers write the same file.
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        try:
            messages = consumer.poll(asked.get("limit", 20), 1.0)
            for message in messages:
                if consumer.holds(message):
                    os.write(log, f"{message.partition} {message.key} {message.value.decode()}\n".encode())
            if asked["commits"]:
                consumer.commit(messages)
                done = [f"committed {m.partition} {m.key} {m.value.decode()}\n" for m in messages]
                os.write(log, "".join(done).encode())
        except errors.ConnectionLost:
            continue


if __name__ == "__main__":
    main()
