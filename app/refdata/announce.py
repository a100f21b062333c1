"""Changes are announced in Redis (section 8.2): at once on a channel, and on a stream for who missed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.adapters.topics.streams_redis import Server, errors_of
from app.refdata.config import Redis


class Announcer:
    """The channel and the stream of announcements, in a single Redis or in a Redis Cluster."""

    def __init__(self, config: Redis, environ: Mapping[str, str]) -> None:
        """BadConfig names a variable that is not set. Nothing is connected yet."""
        self._config = config
        self._server = Server(config.urls(environ))

    def announce(self, payloads: Sequence[bytes]) -> None:
        """Each payload is on the stream and was published, in order. ConnectionLost: perhaps not all."""
        with errors_of():
            stream = self._server.client.pipeline(transaction=False)
            for payload in payloads:
                stream.xadd(
                    self._config.stream_key, {"payload": payload}, maxlen=self._config.stream_length,
                    approximate=True,
                )  # fmt: skip
            stream.execute()
            channel = self._any_node().pipeline(transaction=False)
            for payload in payloads:
                channel.publish(self._config.pub_channel, payload)
            channel.execute()

    def _any_node(self) -> Any:
        """Any node of a cluster hands a message on to all the others."""
        client = self._server.client
        return client.get_redis_connection(client.get_random_node()) if self._server.nodes() else client

    def close(self) -> None:
        """The connections are closed."""
        self._server.close()
