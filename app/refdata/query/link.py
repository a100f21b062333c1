"""The reader's side of the socket: what the loader tells goes on the shelf; what is missing is asked for."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

from app.adapters import logs
from app.refdata.query import frames
from app.refdata.query.frames import Changed, Entries, Failed, FromReader, Gone, Pulse, Whole
from app.refdata.query.shelf import Shelf
from app.refdata.query.table import Place

log = logs.get(__name__)

AGAIN_SECONDS = 0.1
ASK_SECONDS = 5.0


class Link:
    """One connection to the loader, made anew whenever it breaks; meanwhile the shelf stays as it is."""

    def __init__(self, path: Path, shelf: Shelf) -> None:
        self._path = path
        self._shelf = shelf
        self._loader: asyncio.StreamWriter | None = None
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Entries | Failed]] = {}

    async def run(self) -> None:
        """The loader is listened to until this is cancelled."""
        while True:
            try:
                stream, self._loader = await asyncio.open_unix_connection(self._path)
                await self._listen(stream)
            except (OSError, asyncio.IncompleteReadError):
                if self._loader is not None:
                    log.warning("refdata_loader_lost")
            except Exception:  # a frame that breaks us must not be the last one that is heard
                log.exception("refdata_link_broke")
            finally:
                self._shelf.is_linked = False
                if self._loader is not None:
                    self._loader.close()
                    self._loader = None
                for number, asked in self._asked.items():
                    if not asked.done():
                        asked.set_result(Failed(number, "PRIMARY_UNAVAILABLE"))
            await asyncio.sleep(AGAIN_SECONDS)

    def want(self, place: Place, version: int) -> None:
        """The loader hurries with this dictionary."""
        self._send(frames.Want(*place, version))

    async def ask(self, place: Place, version: int, keys: list[str]) -> Entries | Failed:
        """These entries as the database has them, if it has this version."""
        number = next(self._numbers)
        answer: asyncio.Future[Entries | Failed] = asyncio.get_running_loop().create_future()
        if not self._send(frames.Ask(number, *place, version, keys)):
            return Failed(number, "PRIMARY_UNAVAILABLE")
        self._asked[number] = answer
        try:
            return await asyncio.wait_for(answer, ASK_SECONDS)
        except TimeoutError:
            return Failed(number, "PRIMARY_UNAVAILABLE")
        finally:
            del self._asked[number]

    def _send(self, frame: FromReader) -> bool:
        if self._loader is None or self._loader.is_closing():
            return False
        self._loader.write(frames.encode(frame))
        return True

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        told: set[Place] | None = set()
        while True:
            frame = await frames.read(stream, frames.from_loader)
            match frame:
                case Whole(tenant_id, dict_code) | Changed(tenant_id, dict_code):
                    place = (tenant_id, dict_code)
                    if told is not None:
                        told.add(place)
                    taken = (
                        self._shelf.whole(frame) if isinstance(frame, Whole) else self._shelf.change(frame)
                    )
                    if not taken:
                        self.want(place, 0)
                case Gone():
                    self._shelf.drop(frame)
                case Pulse():
                    self._shelf.hear(frame)
                    # A loader that has just begun knows nothing yet: what is here stays until it does.
                    if told is not None and frame.is_ready:
                        self._shelf.only(told)
                        told = None
                case Entries() | Failed():
                    asked = self._asked.get(frame.number)
                    if asked is not None and not asked.done():
                        asked.set_result(frame)
