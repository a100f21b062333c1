"""A supplier's config: how its list is read, and which limits it must keep (ETL CANON §8)."""

from __future__ import annotations

import codecs
import hashlib
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import yaml
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from app.suppliers.failures import SupplierFailure
from app.suppliers.reading.names import folded

MAX_BYTES = 256 * 1024
DEFAULT_STABILITY_SECONDS = 30.0

FIELDS = frozenset(
    ("sku", "name", "brand", "price_minor", "currency", "qty", "qty_min", "qty_raw", "warehouse")
)
"""What a payload holds anyway, so that no extra field may be called so."""

FORMATS = ("xlsx", "xls", "xlsb", "csv", "yml", "json", "html", "spreadsheetml")


class _Part(pydantic.BaseModel):
    """One section: unknown keys are refused, since a misspelt limit would be no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _several(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else (value,)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _decimal(value: Any) -> Any:
    # A YAML float is as it was written: 0.10 is a tenth, not the binary number beside it.
    return Decimal(repr(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _name_of_encoding(value: str) -> str:
    try:
        return value if value == "auto" else codecs.lookup(value).name
    except LookupError:
        raise ValueError("unknown encoding") from None


Text = Annotated[str, Field(min_length=1, max_length=200)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_tuple)]
Column = Annotated[int, Field(ge=1, le=16_384)]
Source = Annotated[tuple[Text | Column, ...], BeforeValidator(_several), Field(min_length=1)]
"""A header name, several of which the first present one counts, or a column number from 1."""
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]{0,63}$")]
Ratio = Annotated[Decimal, BeforeValidator(_decimal), Field(ge=0, le=1)]
Days = Annotated[int, Field(ge=1, le=3650)]
Word = int | Annotated[str, Field(pattern=r"^\d{1,9}\+?$")]
Mark = Literal[".", ","]
Group = Annotated[str, Field(min_length=1, max_length=1, pattern=r"^[.,'’ ]$")]


class Input(_Part):
    """Which files are taken, and how their text is read."""

    formats: Annotated[tuple[Literal[FORMATS], ...], BeforeValidator(_tuple)] = FORMATS  # type: ignore[valid-type]
    zip: Literal["allow", "require", "refuse"] = "allow"
    member: Text | None = None
    encoding: Annotated[str, AfterValidator(_name_of_encoding)] = "auto"
    delimiter: Literal["auto", ";", "\t", ",", "|"] = "auto"


class Header(_Part):
    """Where the names of the columns are."""

    rows: Literal[0, 1, 2] = 1
    search_rows: Annotated[int, Field(ge=1, le=1000)] = 30
    fill_right: bool = False


class Sheet(_Part):
    """One sheet of a workbook that is read, by its name or by a pattern."""

    name: Text | None = None
    match: Text | None = None
    category_key: Key
    required: bool = False

    @pydantic.model_validator(mode="after")
    def _named_once(self) -> Sheet:
        if (self.name is None) == (self.match is None):
            raise ValueError("a sheet has either a name or a pattern")
        return self


class Code(_Part):
    """The column of the codes."""

    source: Source = Field(alias="from")
    fallback: Text | Column | None = None


class Plain(_Part):
    """A column that is taken as it is."""

    source: Source = Field(alias="from")


class Money(_Part):
    """A column of prices, and how they are written."""

    source: Source = Field(alias="from")
    fallback: Text | Column | None = None
    decimal: Mark = "."
    group: Group | None = None
    strip: Texts = ()
    on_request: Texts = ()


class Warehouse(_Part):
    """A column with the stock of one warehouse."""

    source: Source = Field(alias="from")
    warehouse: Text
    optional: bool = False


class Quantity(_Part):
    """Where the stock is, and how it is written."""

    source: Source | None = Field(default=None, alias="from")
    warehouses: Annotated[tuple[Warehouse, ...], BeforeValidator(_tuple)] = ()
    fixed: Word | None = None
    decimal: Mark = "."
    group: Group | None = None
    words: dict[Text, Word] = {}
    blank: Literal["bad", "zero", "none"] = "bad"
    negative: Literal["bad", "zero"] = "bad"

    @pydantic.model_validator(mode="after")
    def _one_source(self) -> Quantity:
        given = [self.source is not None, bool(self.warehouses), self.fixed is not None]
        if given.count(True) != 1:
            raise ValueError("the quantity comes from a column, from warehouses, or is fixed")
        return self


class Columns(_Part):
    """The columns of the fields."""

    sku: Code
    price: Money
    qty: Quantity
    name: Plain | None = None
    brand: Plain | None = None
    warehouse: Plain | None = None
    currency: Plain | None = None


class Extra(_Part):
    """A further column; what cannot be read of it is null and never a reason to refuse a row."""

    source: Source = Field(alias="from")
    type: Literal["text", "code", "money"] = "text"
    decimal: Mark = "."
    group: Group | None = None
    strip: Texts = ()


class Rows(_Part):
    """Which rows are no data."""

    structure_when_blank: Annotated[
        tuple[Literal["sku", "name", "brand", "price", "qty", "warehouse", "currency"], ...],
        BeforeValidator(_tuple),
    ] = ()
    totals: Texts = ()


class Limits(_Part):
    """What a list must keep to be published."""

    min_fact_count: Annotated[int, Field(ge=0)]
    max_bad_ratio: Ratio
    allow_empty_snapshot: bool


class Drop(_Part):
    """Which share of the published goods may be missing in a new list."""

    warn: Ratio | None = Decimal("0.30")
    fail: Ratio | None = None


class Guards(_Part):
    """Comparisons with what is published, and how old that may be."""

    max_sku_drop_ratio: Drop = Drop()
    max_state_age_hours: Annotated[int, Field(ge=1, le=87_600)] | None = 48


class Retention(_Part):
    """How long everything is kept."""

    quarantine_days: Days = 30
    archive_days: Days = 30
    runs_days: Days = 30
    diag_days: Days = 7
    accepted_days: Days = 365
    state_hours: Annotated[int, Field(ge=1, le=87_600)] = 12


class Config(_Part):
    """All that is set for one supplier: one feed, not one company."""

    version: Literal[1]
    supplier: str
    title: Text = ""
    input: Input = Input()
    delivery: Literal["copy", "atomic_rename"] = "copy"
    file_stability_window: Annotated[float, Field(ge=0, le=86_400, strict=False)] = DEFAULT_STABILITY_SECONDS
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    exponent: Annotated[int, Field(ge=0, le=4)] = 2
    header: Header = Header()
    sheets: Annotated[tuple[Sheet, ...], BeforeValidator(_tuple)] = ()
    ignore_sheets: Texts = ()
    category_key: Key | None = None
    columns: Columns
    extra: dict[Key, Extra] = {}
    rows: Rows = Rows()
    key: Annotated[tuple[Literal["sku", "warehouse"], ...], BeforeValidator(_tuple)] = ("sku",)
    duplicates: Literal["bad", "first", "sum"] = "bad"
    dq: Limits
    guards: Guards = Guards()
    older_input: Literal["obsolete", "publish"] = "obsolete"
    reaccept_after_newer: bool = False
    drift_alert_after: Annotated[int, Field(ge=2, le=1000)] = 3
    retention: Retention = Retention()
    sha256: str = ""  # of the file; not set in it

    @property
    def stability_seconds(self) -> float:
        """For how long a file must not have changed before it is taken."""
        return 0.0 if self.delivery == "atomic_rename" else self.file_stability_window

    @pydantic.model_validator(mode="after")
    def _is_coherent(self) -> Config:
        if bool(self.sheets) == (self.category_key is not None):
            raise ValueError("there are either sheets or one category_key")
        if self.key not in (("sku",), ("sku", "warehouse")):
            raise ValueError("the key is [sku] or [sku, warehouse]")
        by_warehouse = bool(self.columns.qty.warehouses) or self.columns.warehouse is not None
        if "warehouse" in self.key and not by_warehouse:
            raise ValueError("the key names a warehouse, and no column does")
        if self.columns.qty.warehouses and self.columns.warehouse is not None:
            raise ValueError("the warehouse is a column or a row's cell, not both")
        if self.duplicates == "sum" and by_warehouse and "warehouse" not in self.key:
            raise ValueError("stock of several warehouses is summed under the key [sku, warehouse] only")
        keys = [f"{name}_minor" if one.type == "money" else name for name, one in self.extra.items()]
        if FIELDS & {*self.extra, *keys} or len(set(keys)) < len(keys):
            raise ValueError("an extra field has the name of a field")
        names = [folded(name) for name in self.columns.qty.words]
        if len(set(names)) < len(names):
            raise ValueError("a word stands twice")
        return self


def load(path: Path, supplier: str) -> Config:
    """The config in this file; SupplierFailure CONFIG_DQ_MISSING or CONFIG_INVALID says what is wrong."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError:
        raise SupplierFailure("CONFIG_DQ_MISSING", stage="config") from None
    if len(content) > MAX_BYTES:
        raise SupplierFailure("CONFIG_INVALID", stage="config", problem="too_large")
    found = _parsed(content)
    dq = found.get("dq")
    if dq is None or (isinstance(dq, dict) and not set(Limits.model_fields) <= dq.keys()):
        raise SupplierFailure("CONFIG_DQ_MISSING", stage="config", key="dq")
    try:
        config = Config.model_validate({**found, "sha256": hashlib.sha256(content).hexdigest()})
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise SupplierFailure("CONFIG_INVALID", stage="config", key=place, problem=first["msg"]) from None
    if config.supplier != supplier or "sha256" in found:
        raise SupplierFailure("CONFIG_INVALID", stage="config", key="supplier")
    return config


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        found = yaml.load(content.decode("utf-8"), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        problem = str(getattr(error, "problem", None) or type(error).__name__)
        raise SupplierFailure("CONFIG_INVALID", stage="config", problem=problem) from None
    if not isinstance(found, dict):
        raise SupplierFailure("CONFIG_INVALID", stage="config", problem="no mapping")
    return found


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Plain values only: no tags, no aliases (they can grow without end), no key twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not taken")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if any(isinstance(key, dict | list) for key in keys) or len(set(keys)) < len(keys):
            raise yaml.constructor.ConstructorError(None, None, "a key stands twice", node.start_mark)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found
