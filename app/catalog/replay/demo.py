"""The recorded API with invented goods beside the recorded ones, for trying the jobs without a key."""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
import threading

from app.catalog.replay import invented, server

SHOWN = 5
RANKED = 30
"""Items of one ranking, as the API gives them."""


def serve(port: int, *, items: int) -> None:
    """The API was served until it was stopped, so many invented items and their rankings in it."""
    # A shell that starts it in the background has interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with server.ReplayServer(port) as api, contextlib.suppress(KeyboardInterrupt):
        add_invented(api, items)
        print(
            f"Recorded answers are served at {api.url}. To work with them, in another terminal:\n", flush=True
        )
        print(f"  export HEADWORKS_CATALOG_URL={api.url} HEADWORKS_CATALOG_INTERVAL_SECONDS=0")
        print("  export HEADWORKS_CATALOG_APPLICATION_ID=demo HEADWORKS_CATALOG_ACCESS_KEY=demo")
        genres = " ".join(f"--enable {genre}" for genre in api.ids("ranking")[-SHOWN:])
        print(f"  headworks catalog genres {genres}\n  headworks catalog net\n", flush=True)
        for entity in ("item", "ranking", "genre", "tag"):
            ids = api.ids(entity)
            print(f"  {entity:8}{len(ids):5}  such as {', '.join(ids[-SHOWN:])}", flush=True)
        print("Any applicationId and accessKey will do. Ctrl-C ends it.", file=sys.stderr, flush=True)
        threading.Event().wait()


def add_invented(api: server.ReplayServer, items: int) -> None:
    """The API knows so many invented items, and the rankings of their genres name them."""
    made = sorted(invented.items(items), key=lambda item: str(item["genreId"]))
    for item in made:
        api.put("item", str(item["itemCode"]), item)
    for genre_id, some in itertools.groupby(made, key=lambda item: str(item["genreId"])):
        api.put("ranking", genre_id, invented.ranking(genre_id, list(itertools.islice(some, RANKED))))
