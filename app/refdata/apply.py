"""Commands have their effect (section 6.1): data, version, request and announcement in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg2
import psycopg2.errors

from app.adapters import logs, metrics
from app.adapters.database import Connection, Database
from app.kernel import errors
from app.refdata import states, store
from app.refdata.commands import Command
from app.refdata.config import Config
from app.refdata.provider import CommandRefused, Numbered, PostgresSqlProvider
from app.refdata.store import Ended, Event, Place, Version

log = logs.get(__name__)

AT_ONCE = 200
"""So many deltas share a transaction at most."""

SNAPSHOT_SECONDS = 900.0
"""So long one statement of a snapshot may take."""

LONGEST_SENTENCE = 1000

_WAITS = (errors.ConnectionLost, errors.TransactionTimeout, errors.Deadlock, errors.DiskFull)
"""What is nobody's fault, and passes."""


class Applier:
    """What changes the dictionaries."""

    def __init__(self, config: Callable[[], Config], databases: Mapping[str, Database]) -> None:
        """`databases` by their names in the configuration; the one of the platform is `postgres`."""
        self._config = config
        self._databases = databases

    def apply(self, commands: Sequence[tuple[Command, str | None]]) -> list[Ended]:
        """What became of each command, in their order; with each goes the trace that it belongs to.

        One that was here before is not applied again. A command that cannot have its effect is refused by
        itself, and the others are not. Transient errors leave it as they are: then any of the commands may
        have had its effect, and all can be applied again.
        """
        found: list[Ended] = []
        together: list[Ended] = []
        for command, traceparent in commands:
            one = Ended(command, command.digest, traceparent=traceparent)
            is_known = self._is_known(command.dict_code)
            alone = command.chunk is not None or not is_known
            if together and (alone or len(together) == AT_ONCE or not self._share(together[0], one)):
                found += self._deltas(together)
                together = []
            if not is_known:
                found.append(self.refuse(one, "UNKNOWN_DICTIONARY"))
            elif alone:
                found.append(self._by_itself(one, self._chunk))
            else:
                together.append(one)
        return found + self._deltas(together)

    def _is_known(self, dict_code: str) -> bool:
        dictionary = self._config().dictionaries.get(dict_code)
        return dictionary is not None and dictionary.enabled

    def _share(self, one: Ended, other: Ended) -> bool:
        return self._database_of(one.command.dict_code) is self._database_of(other.command.dict_code)

    def _database_of(self, dict_code: str) -> Database:
        dictionary = self._config().dictionaries.get(dict_code)
        return self._databases[dictionary.database if dictionary else "postgres"]

    def _schema_of(self, dict_code: str) -> str:
        config = self._config()
        dictionary = config.dictionaries.get(dict_code)
        return config.databases[dictionary.database if dictionary else "postgres"].schema_

    def _provider(self, dict_code: str) -> PostgresSqlProvider:
        dictionary = self._config().dictionaries.get(dict_code)
        if dictionary is None or not dictionary.enabled:
            raise CommandRefused("UNKNOWN_DICTIONARY")
        return PostgresSqlProvider(dictionary)

    # -- deltas: many in one transaction, or where one of them is refused each in its own

    def _deltas(self, ones: list[Ended]) -> list[Ended]:
        if len(ones) > 1:
            try:
                return self._in_one(ones, self._apply_deltas)
            except (errors.ConnectionLost, errors.DiskFull):
                raise
            except Exception as error:  # whatever it is: it is one command's, and the others go on
                log.info(
                    "refdata_batch_split",
                    commands=len(ones),
                    code=getattr(error, "code", type(error).__name__),
                )
        return [
            self._by_itself(one, lambda conn, versions, mine: self._apply_deltas(conn, versions, [mine])[0])
            for one in ones
        ]

    def _in_one(
        self, ones: list[Ended], work: Callable[[Connection, dict[Place, Version], list[Ended]], list[Ended]]
    ) -> list[Ended]:
        code = ones[0].command.dict_code
        with self._database_of(code).transaction(None) as conn:
            versions = store.lock(conn, [_place(one) for one in ones], self._schema_of(code))
            found = work(conn, versions, ones)
        for one in found:
            self._tell(one)
        return found

    def _apply_deltas(
        self, conn: Connection, versions: dict[Place, Version], ones: list[Ended]
    ) -> list[Ended]:
        """Each delta's items in its dictionary; a refusal is raised where they are several."""
        before = store.processed(conn, [one.command for one in ones])
        ended: dict[Event, Ended] = {}
        found: list[Ended] = []
        for one in ones:
            event = one.command.event
            known = before.get(event) or ended.get(event)
            if known is None:
                ended[event] = _numbered(versions, one)
            found.append(ended[event] if known is None else _repeated(conn, one, known))
        deltas: dict[Place, list[Numbered]] = {}
        for one in ended.values():
            if one.version is not None:
                deltas.setdefault(_place(one), []).append((one.command, one.version))
        for (tenant_id, dict_code), of_it in deltas.items():
            provider = self._provider(dict_code)
            with provider.validated(conn, tenant_id):
                provider.apply_deltas(conn, of_it)
        store.end_commands(conn, list(ended.values()))
        return found

    # -- snapshots: a chunk in a transaction, and with the last one the whole

    def _chunk(self, conn: Connection, versions: dict[Place, Version], one: Ended) -> Ended:
        command, chunk = one.command, one.command.chunk
        assert chunk is not None
        if (before := store.processed(conn, [command]).get(command.event)) is not None:
            return _repeated(conn, one, before)
        stands = versions[_place(one)]
        provider = self._provider(command.dict_code)
        _check_open(command, stands)
        snapshot = store.begin_snapshot(conn, command, chunk)
        if (snapshot.chunks_total, snapshot.source_revision) != (chunk.total, command.source_revision):
            raise CommandRefused("SNAPSHOT_MISMATCH")
        digest = command.digest_of_items
        if store.add_chunk(conn, command, chunk, _entries(command), digest) != digest:
            raise CommandRefused("CHUNK_CONFLICT")
        if snapshot.version is not None:  # it is in: this chunk came once more, under another event
            store.note_chunk(conn, one, chunk)
            store.end_snapshot(conn, command, chunk, snapshot.version)
            return replace(one, version=snapshot.version, repeated=True)
        _check_revision(command, stands)
        if store.count_chunks(conn, command, chunk) < chunk.total:
            store.note_chunk(conn, one, chunk)
            return one
        if twice := store.unpack_snapshot(conn, command, chunk):
            raise CommandRefused("DUPLICATE_KEY", f"Two chunks have the key {twice}.")
        whole = replace(one, version=stands.version + 1)
        versions_kept = self._config().refdata.limits.archived_versions
        provider.archive(conn, command.tenant_id, stands.version, versions=versions_kept)
        with provider.validated(conn, command.tenant_id):
            provider.replace(conn, command, stands.version + 1)
        store.end_commands(conn, [whole])
        store.end_snapshot(conn, command, chunk, stands.version + 1)
        return whole

    # -- one command alone, refused where it cannot have its effect

    def _by_itself(
        self, one: Ended, work: Callable[[Connection, dict[Place, Version], Ended], Ended]
    ) -> Ended:
        try:
            database = self._database_of(one.command.dict_code)
            seconds = SNAPSHOT_SECONDS if one.command.chunk else None
            with database.transaction(None, timeout_seconds=seconds) as conn:
                versions = store.lock(conn, [_place(one)], self._schema_of(one.command.dict_code))
                found = work(conn, versions, one)
            self._tell(found)
            return found
        except CommandRefused as error:
            return self.refuse(one, error.code, error.sentence)
        except _WAITS:
            raise
        except errors.HeadworksError as error:
            return self.refuse(one, "ITEM_REFUSED", error.sentence)
        except psycopg2.errors.RaiseException as error:  # the dictionary's own SQL says why
            return self.refuse(one, "ITEM_REFUSED", error.diag.message_primary or "")
        except psycopg2.Error as error:
            return self.refuse(one, "TEMPLATE_FAILED", f"{error.pgcode}: {error.diag.message_primary}")
        except Exception:  # a mistake of ours must not stop a partition for good
            log.exception("refdata_command_broke", eventId=str(one.command.event_id))
            return self.refuse(one, "INTERNAL_ERROR")

    def refuse(self, one: Ended, code: str, sentence: str = "") -> Ended:
        """The command is refused for good, and its request says so; one that had its end before keeps it."""
        refused = replace(
            one, error_code=code, sentence=(sentence or states.CODES[code].sentence)[:LONGEST_SENTENCE]
        )
        with self._database_of(one.command.dict_code).transaction(None) as conn:
            before = store.processed(conn, [one.command]).get(one.command.event)
            if before is None:
                store.end_commands(conn, [refused])
            else:
                refused = _repeated(conn, one, before)
        self._tell(refused)
        return refused

    def _tell(self, one: Ended) -> None:
        command = one.command
        outcome = "repeated" if one.repeated else one.status.lower()
        label = command.dict_code if self._is_known(command.dict_code) else "unknown"
        metrics.refdata_commands.labels(label, outcome).inc()
        log.info(
            "refdata_command_ended", eventId=str(command.event_id), tenantId=command.tenant_id,
            dictCode=command.dict_code, version=one.version, source=command.source, outcome=outcome,
            code=one.error_code,
        )  # fmt: skip


def _place(one: Ended) -> Place:
    return one.command.tenant_id, one.command.dict_code


def _check_open(command: Command, stands: Version) -> None:
    is_allowed = command.chunk is not None and command.chunk.snapshot_id == stands.pin_allows
    if stands.is_pinned and not is_allowed:
        raise CommandRefused("DICTIONARY_PINNED")


def _check_revision(command: Command, stands: Version) -> None:
    if command.source_revision is None or stands.revision is None:
        return
    if command.source_revision <= stands.revision:
        raise CommandRefused("STALE_REVISION")


def _numbered(versions: dict[Place, Version], one: Ended) -> Ended:
    """The delta with the version that it makes, which its dictionary has from now on; or refused as stale."""
    place = _place(one)
    stands = versions[place]
    try:
        _check_open(one.command, stands)
        _check_revision(one.command, stands)
    except CommandRefused as error:
        return replace(one, error_code=error.code, sentence=error.sentence)
    newest = [revision for revision in (stands.revision, one.command.source_revision) if revision is not None]
    versions[place] = replace(stands, version=stands.version + 1, revision=max(newest, default=None))
    return replace(one, version=stands.version + 1)


def _repeated(conn: Connection, one: Ended, before: Any) -> Ended:
    """The command was here before, and has had its end; another one under its id is refused."""
    if bytes(before.digest) == one.digest:
        return replace(one, version=before.version, error_code=before.error_code, repeated=True)
    reused = replace(
        one, error_code="EVENT_ID_REUSED", sentence=states.CODES["EVENT_ID_REUSED"].sentence, repeated=True
    )
    store.fail_request(conn, reused)
    return reused


def _entries(command: Command) -> str:
    """The items as one JSON array, their payloads as they were sent."""
    entries = (
        f'{{"key":{json.dumps(item.key)},"payload":{(item.payload or b"null").decode()}}}'
        for item in command.items
    )
    return f"[{','.join(entries)}]"
