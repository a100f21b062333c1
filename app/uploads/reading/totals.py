"""Rows that are no data: totals in every language, and the sentence of an empty report."""

from __future__ import annotations

import re

# What a total is called, in the languages of the platforms' interfaces.
_WORDS = """
total / totals / grand total / sub total / subtotal / subtotals
gesamt / gesamtsumme / gesamtergebnis / summe / zwischensumme / totale / totaal / totais / totales
total geral / total general / total général / somme / sous-total / suma / razem / łącznie / podsumowanie
итого / всего / общий итог / 合計 / 総計 / 小計 / 合计 / 总计 / 總計 / 總和 / 합계 / 총계 / 총합계
toplam / genel toplam / الإجمالي / المجموع / الإجمالي الكلي / סה"כ / jumlah / tổng / tổng cộng / รวม / ผลรวม
yhteensä / totalt / i alt / celkem / összesen
"""
_ANY_WORD = "|".join(
    re.escape(word.strip()) for word in _WORDS.replace("\n", " / ").split(" / ") if word.strip()
)

_LABEL = re.compile(
    rf"^(?:{_ANY_WORD})\s*+(?:[:：\-–—].*|\(.*\))?$"  # Total; Total: Account; Total - filtered
    rf"|^(?:{_ANY_WORD})\s++(?:\w{{1,3}}\s++)?(?=..)[\d.,][\d.,\s]*+\w*+(?<=\w)$"  # Total of 24 results
    r"|^(?:results from|ergebnisse (?:von|aus)|résultats (?:de|pour)|resultados (?:de|para)) \d+.*$"
    r"|^全\s*+[\d,]++\s*+件(?:の結果)?$|^共\s*+[\d,]++\s*+(?:条|項|项).*$|^총\s*+[\d,]++\s*+개.*$",
    re.IGNORECASE | re.DOTALL,
)
_NO_DATA = re.compile(
    r"^(?:no data(?: available)?|no results(?: found)?|keine daten(?: verfügbar)?"
    r"|aucune donnée(?: disponible)?|no hay datos(?: disponibles)?|nenhum dado(?: disponível)?"
    r"|nessun dato(?: disponibile)?|нет данных"
    r"|データ(?:が|は)?(?:ありません|なし)|没有数据|無資料|데이터 없음)[.。!]?$",
    re.IGNORECASE,
)


def is_label(cell: str) -> bool:
    """Whether the cell is the label of a total row: `Total: Account`, and not `Total Wine & Spirits`."""
    value = " ".join(cell.split())
    return len(value) < 100 and bool(_LABEL.match(value))


def is_no_data(cell: str) -> bool:
    """Whether the cell says that the report is empty."""
    return bool(_NO_DATA.match(cell.strip()))
