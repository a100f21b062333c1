"""The states of a request, the codes of refusals, and what is done about each, as data."""

from __future__ import annotations

from dataclasses import dataclass

from app.kernel.states import Edge, Machine

MACHINE = Machine(
    initial="PENDING",
    states=("PENDING", "COMMITTED", "FAILED"),
    edges=(
        Edge("PENDING", "COMMITTED", "apply", "the command had its effect, or a whole snapshot with it"),
        Edge("PENDING", "FAILED", "apply", "the command is refused, or its snapshot was never whole"),
        Edge("FAILED", "PENDING", "a person", "the dead letter is sent again", manual=True),
    ),
)


@dataclass(frozen=True, slots=True)
class Code:
    """Why a command is refused: the answer to whoever waits for it, and what becomes of the command."""

    status: int  # of the HTTP answer
    sentence: str
    dead_letter: bool  # whether somebody has to look at it: then it is kept in the dead-letter topic


CODES: dict[str, Code] = {
    "STALE_REVISION": Code(409, "Its sourceRevision is not above the last one that was applied.", False),
    "EVENT_ID_REUSED": Code(409, "Another command was sent under the same eventId before.", True),
    "CHUNK_CONFLICT": Code(409, "The snapshot has this chunk already, with other items.", True),
    "SNAPSHOT_MISMATCH": Code(
        409, "Its chunksTotal or sourceRevision differs from what the snapshot's first chunk said.", True
    ),
    "DUPLICATE_KEY": Code(422, "A snapshot has one key in two chunks.", True),
    "SNAPSHOT_EXPIRED": Code(409, "The snapshot was not whole in time: send it anew, under a new id.", False),
    "UNKNOWN_DICTIONARY": Code(404, "No dictionary has this code.", True),
    "READ_ONLY_DICTIONARY": Code(409, "The dictionary takes no changes of this kind.", True),
    "DICTIONARY_PINNED": Code(409, "Somebody has pinned the dictionary to its version.", True),
    "VALIDATION_FAILED": Code(422, "The dictionary would not be what its configuration demands.", True),
    "ITEM_REFUSED": Code(422, "The database refuses an item of the command.", True),
    "TEMPLATE_FAILED": Code(500, "The SQL of the dictionary's configuration does not run.", True),
    "TRANSACTION_TIMEOUT": Code(
        500, "The database did not finish the command in time, however often it was tried.", True
    ),
    "MALFORMED_COMMAND": Code(422, "The message is no command.", True),
    "INTERNAL_ERROR": Code(500, "Something unexpected went wrong; it is in the log.", True),
}  # fmt: skip
