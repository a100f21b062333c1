"""The loader's side of the socket: every reader of the pod knows every dictionary, and can ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from app.adapters import logs
from app.refdata.query import frames
from app.refdata.query.frames import Ask, Entries, Failed, FromLoader, Want

log = logs.get(__name__)

MOST_WAITING_BYTES = 256 << 20
"""A reader that takes nothing any more is cut off; when it comes again it gets everything anew."""

MOST_ASKING = 256
"""So many questions to the database may wait; further ones are refused at once."""


class Hub:
    """Sends frames to all readers, and takes theirs; in a thread of its own."""

    def __init__(
        self, path: Path, *, everything: Callable[[], Iterable[FromLoader]], want: Callable[[Want], None],
        ask: Callable[[Ask], FromLoader], at_once: int,
    ) -> None:  # fmt: skip
        """`everything` is what a new reader is told, in the hub's thread; `ask` is called in threads."""
        self._path = path
        self._everything = everything
        self._want = want
        self._ask = ask
        self._answering = ThreadPoolExecutor(at_once, thread_name_prefix="primary")
        self._asked: dict[tuple[str, str, int, tuple[str, ...]], asyncio.Future[FromLoader]] = {}
        self._readers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="hub", daemon=True)
        self._started: Future[None] = Future()

    def start(self) -> None:
        """Readers can connect."""
        self._thread.start()
        self._started.result()

    def tell(self, frame: FromLoader) -> None:
        """Every reader will have the frame, behind those told before. From any thread."""
        self._loop.call_soon_threadsafe(self._tell, frames.encode(frame))

    def close(self) -> None:
        """No reader is connected any more."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._answering.shutdown(wait=False, cancel_futures=True)
        self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._path.unlink(missing_ok=True)
            server = self._loop.run_until_complete(asyncio.start_unix_server(self._serve, self._path))
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _tell(self, content: bytes) -> None:
        for reader in list(self._readers):
            self._send(reader, content)

    def _send(self, reader: asyncio.StreamWriter, content: bytes) -> None:
        if reader.transport.get_write_buffer_size() > MOST_WAITING_BYTES:
            log.warning("refdata_reader_cut_off")
            reader.transport.abort()
            self._readers.discard(reader)
        elif not reader.transport.is_closing():
            reader.write(content)

    async def _serve(self, stream: asyncio.StreamReader, reader: asyncio.StreamWriter) -> None:
        self._readers.add(reader)
        asking: set[asyncio.Task[None]] = set()
        try:
            for frame in self._everything():
                self._send(reader, frames.encode(frame))
            while True:
                frame = await frames.read(stream, frames.from_reader)
                if isinstance(frame, Want):
                    self._want(frame)
                else:
                    task = asyncio.ensure_future(self._answer(reader, frame))
                    asking.add(task)
                    task.add_done_callback(asking.discard)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._readers.discard(reader)
            reader.close()

    async def _answer(self, reader: asyncio.StreamWriter, ask: Ask) -> None:
        """The database is asked, once for all who ask the same at the same time."""
        same = (ask.tenant_id, ask.dict_code, ask.version, tuple(ask.keys))
        if (known := self._asked.get(same)) is not None:
            answer = await known
            # It was asked before: what has been committed since then is not in it.
            if not isinstance(answer, Entries) or answer.payloads is not None:
                self._send(reader, frames.encode(_numbered(answer, ask.number)))
                return
        if len(self._asked) >= MOST_ASKING:
            self._send(reader, frames.encode(Failed(ask.number, "PRIMARY_BUSY")))
            return
        mine = asyncio.ensure_future(self._loop.run_in_executor(self._answering, self._ask, ask))
        self._asked[same] = mine
        try:
            answer = await mine
        finally:
            if self._asked.get(same) is mine:
                del self._asked[same]
        self._send(reader, frames.encode(answer))


def _numbered(answer: FromLoader, number: int) -> FromLoader:
    if isinstance(answer, Failed):
        return Failed(number, answer.code)
    assert isinstance(answer, Entries)
    return Entries(number, answer.epoch, answer.version, answer.payloads)
