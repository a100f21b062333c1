"""Days as reports write them: the order of day and month is decided on the whole column."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta

from app.uploads.reading.cells import NULLS, Problem, is_all

ORDERS = ("dmy", "mdy")
FIRST_YEAR, LAST_YEAR = 1990, 2100

_MONTHS = """
january jan januar jänner januari janeiro enero ene janvier janv gennaio gen январь января янв styczeń stycznia sty ocak oca leden ledna
february feb februar februari fevereiro fev febrero février févr fevr febbraio февраль февраля фев luty lutego lut şubat şub únor února
march mar mär märz maart mrt março marzo mars март марта мар marzec marca mart březen března
april apr abril abr avril avr aprile апрель апреля апр kwiecień kwietnia kwi nisan nis duben dubna
may mai mei maio mayo maggio mag maj май мая maja mayıs květen května
june jun juni junho junio juin giugno giu июнь июня июн czerwiec czerwca cze haziran haz červen června
july jul juli julho julio juillet juil luglio lug июль июля июл lipiec lipca lip temmuz tem červenec července
august aug augustus agosto ago août aout augusti август августа авг sierpień sierpnia sie ağustos ağu srpen srpna
september sep sept setembro set septiembre septembre settembre сентябрь сентября сен сент wrzesień września wrz eylül eyl září
october oct oktober okt outubro out octubre octobre ottobre ott октябрь октября окт październik października paź ekim eki říjen října
november nov novembro noviembre novembre ноябрь ноября ноя нояб listopad listopada lis kasım kas
december dec dezember dez dezembro diciembre dic décembre déc dicembre декабрь декабря дек grudzień grudnia gru aralık ara prosinec prosince
"""  # noqa: E501
MONTHS = {
    word: number for number, line in enumerate(_MONTHS.strip().splitlines(), start=1) for word in line.split()
}

# A time begins where its blanks begin, and these give nothing back: a cell of blanks is looked at once.
_TIME = (
    r"(?:(?<![T ,])[T ,]++\d{1,2}:\d{2}(?::\d{2})?(?:\.\d++)?\s*+(?:[AaPp]\.?[Mm]\.?)?\s*+"
    r"(?:Z|UTC|[+-]\d{2}:?\d{2})?)?"
)
_YEAR_FIRST = re.compile(
    rf"^(\d{{4}})\s*[-/.年년]\s*(\d{{1,2}})\s*[-/.月월]\s*(\d{{1,2}})\s*[日일.]?{_TIME}$"
)
_YEAR_LAST = re.compile(rf"^(\d{{1,2}})[-/.](\d{{1,2}})[-/.](\d{{4}}|\d{{2}}){_TIME}$")
_COMPACT = re.compile(r"^(\d{4})(\d{2})(\d{2})$")
_SERIAL = re.compile(r"^\d{5}(?:\.0+)?$")
_SERIAL_EPOCH = date(1899, 12, 30)
_WORDS = re.compile(r"[^\W\d_]+|\d+")
_FILLERS = frozenset(
    """
    de del of den der the г год года monday tuesday wednesday thursday friday saturday sunday
    """.split()
)
_RANGE = re.compile(r"^(.+?)(?<!\s)\s++(?:-|–|—|~|〜|to|bis|a|à|至)\s++(.+)$|^(.+?)(?<!\s)\s*+[~〜]\s*+(.+)$")


@dataclass(slots=True)
class OrderEvidence:
    """What the cells of the date columns say about the order of day and month."""

    votes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ORDERS, 0))
    undecided: str = ""  # a date that is another day in the other order

    def look_at(self, cells: Iterable[str]) -> None:
        """Count each date whose day can only stand in one of the two places."""
        for cell in cells:
            for part in _parts(_clean(cell)):
                self._look_at_date(part)

    def _look_at_date(self, value: str) -> None:
        match = _YEAR_LAST.match(value)
        if not match:
            return
        first, second = int(match[1]), int(match[2])
        if first > 12 >= second:
            self.votes["dmy"] += 1
        elif second > 12 >= first:
            self.votes["mdy"] += 1
        elif first != second and not self.undecided:
            self.undecided = value

    def order(self, *, minority_percent: int = 10) -> str | None:
        """The order that the cells agree on; None when they say nothing or contradict each other."""
        most = max(self.votes, key=lambda order: self.votes[order])
        total = sum(self.votes.values())
        if not total or (total - self.votes[most]) * 100 > total * minority_percent:
            return None
        return most

    @property
    def ambiguous(self) -> bool:
        """Whether some date of the column needs an order that nothing decides."""
        return self.order() is None and (bool(self.undecided) or sum(self.votes.values()) > 0)


def day(cell: str, order: str | None) -> date | Problem | None:
    """The day in a cell; the time of day is dropped, never shifted by a time zone.

    None for a null token. A range is a Problem `date_range`, unless it begins and ends on one day.
    """
    value = _clean(cell)
    if value in NULLS:
        return None
    found = {_single(part, order) for part in _parts(value)}
    if None in found:
        return Problem("invalid_date", cell)
    if len(found) > 1:
        return Problem("date_range", cell)
    return found.pop()


def is_subtotal(cell: str) -> bool:
    """Whether the date cell marks a subtotal over all days."""
    return is_all(cell)


def _clean(cell: str) -> str:
    return unicodedata.normalize("NFKC", cell).strip()


def _parts(value: str) -> list[str]:
    match = _RANGE.match(value)
    return [part for part in match.groups() if part] if match else [value]


def _single(value: str, order: str | None) -> date | None:
    if match := _YEAR_FIRST.match(value) or _COMPACT.match(value):
        return _date(*map(int, match.groups()))
    if match := _YEAR_LAST.match(value):
        first, second, year = (int(part) for part in match.groups())
        year += 2000 if year < 100 else 0
        return _date(year, first, second) if order == "mdy" else _date(year, second, first)
    if _SERIAL.match(value):
        return _checked(_SERIAL_EPOCH + timedelta(days=int(value[:5])))
    return _with_month_name(value)


def _with_month_name(value: str) -> date | None:
    value = re.sub(rf"{_TIME}$", "", value)
    words = [word for word in _WORDS.findall(value.casefold()) if word not in _FILLERS]
    months = [MONTHS[word] for word in words if word in MONTHS]
    numbers = [word for word in words if word.isdecimal()]  # ፩ is a digit, and no figure of a decimal number
    if len(words) != 3 or len(months) != 1 or len(numbers) != 2:
        return None
    years = [int(number) for number in numbers if len(number) == 4]
    days = [int(number) for number in numbers if len(number) <= 2]
    return _date(years[0], months[0], days[0]) if len(years) == len(days) == 1 else None


def _date(year: int, month: int, day_of_month: int) -> date | None:
    try:
        return _checked(date(year, month, day_of_month))
    except ValueError:
        return None


def _checked(found: date) -> date | None:
    return found if FIRST_YEAR <= found.year <= LAST_YEAR else None
